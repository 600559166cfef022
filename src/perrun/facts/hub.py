"""Any model by its `config.json`: the facts of the file become a Model."""

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from perrun.errors import InvalidInput, UnsupportedModel
from perrun.facts import families
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape
from perrun.terms import Model

_LANGUAGE_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ChatGLMModel")
# Signs that a model is more than dense attention and MLP: reading it as Llama would be a guess.
_MORE_THAN_DENSE = ("expert", "moe", "lora_rank", "ssm", "mamba", "linear_attn", "conv_", "state_size", "altup")


def _architecture(f: Fields) -> str:
    names = f.items("architectures") or []
    return str(names[0]) if names else ""


def _unsupported(f: Fields, model_type: str, why: str) -> UnsupportedModel:
    near = get_close_matches(model_type, {*families.READERS, *families.WRAPPERS}, n=3, cutoff=0.7)
    spelled = f"if {model_type} is a new spelling of {' or '.join(near)}, set model_type so in the config.json"
    return UnsupportedModel(
        f"{f.where}: {why}",
        expected="a causal language model (decoder only) of a family that perrun reads",
        hint=spelled if near else "perrun models lists models of every family",
    )


def _language_part(f: Fields, model_type: str) -> tuple[Fields, str]:
    """The fields and model_type of the language part: of `text_config` in a wrapper with towers, else all."""
    if model_type not in families.WRAPPERS:
        return f, model_type
    text = f.section("text_config")
    inner = families.WRAPPERS[model_type][0]
    if text is None:  # older files of Qwen VL keep the language part at the top
        return f, inner
    given = text.text("model_type")
    if f.has("tie_word_embeddings"):
        text = text.overlaid(tie_word_embeddings=f.flag("tie_word_embeddings"))
    return text, given if given in families.READERS else inner


def _tower_params(f: Fields, model_type: str, text: Fields, hidden: int) -> int:
    """Parameters of the vision and audio parts, 0 for a plain language model."""
    if model_type not in families.WRAPPERS:
        return 0
    from perrun.facts.families import towers

    if model_type == "gemma3n":
        return towers.gemma3n(text)
    vision = f.section("vision_config")
    if vision is None and model_type == "llama4":
        vision = Fields({}, f.where)  # trimmed copies lack it; both published models have the default tower
    if vision is None:
        raise InvalidInput(f"{f.where}: vision_config is missing", expected="the tower of a vision-language model")
    total: int = getattr(towers, families.WRAPPERS[model_type][1] or "")(vision, hidden)
    audio = f.section("audio_config")
    return total + (towers.gemma4_audio(audio, hidden) if audio is not None else 0)


def _llama_like(f: Fields, model_type: str, architecture: str) -> Shape:
    """A dense decoder of unknown model_type read as Llama; refused where anything speaks against it."""
    if not architecture.endswith("ForCausalLM"):
        raise _unsupported(
            f, model_type, f"model_type {model_type!r} ({architecture or 'no architecture'}) is not known"
        )
    strange = [key for key in f.config if any(word in key for word in _MORE_THAN_DENSE) and f.config[key]]
    if strange or not f.has("intermediate_size"):
        why = f"it has {', '.join(sorted(strange)[:3])}" if strange else "it has no intermediate_size"
        raise _unsupported(f, model_type, f"model_type {model_type!r} is not known and not Llama-like ({why})")
    llama = families.reader("llama")
    assert llama is not None
    return llama(f)


def _shape(f: Fields, model_type: str, architecture: str) -> tuple[Shape, Fields, str]:
    """Shape, language part, and how it was read."""
    text, inner = _language_part(f, model_type)
    read = families.reader(inner)
    if read is None:
        shape = _llama_like(f, model_type, architecture)
        return shape, f, f"config.json, read as llama-like (model_type {model_type!r} is not known)"
    if architecture and not any(head in architecture for head in _LANGUAGE_HEADS):
        raise _unsupported(f, model_type, f"{architecture} is no causal language model")
    shape = read(text)
    tower = _tower_params(f, model_type, text, shape.hidden_size)
    return replace(shape, tower_params=tower) if tower else shape, text, "config.json"


def _quantization(f: Fields) -> str | None:
    """The scheme that the stored weights carry: gptq, awq, mxfp4, fp8, bitsandbytes, ..."""
    quantization = f.section("quantization_config")
    return quantization.text("quant_method", default="unknown") if quantization is not None else None


def _with_details(shape: Shape, f: Fields, model_type: str) -> Shape:
    """The kind of norm, the squashing of scores and what peft reaches, which no parameter count shows."""
    silent_gemma2 = model_type == "gemma2" and "attn_logit_softcapping" not in f.config  # its class squashes at 50
    softcap = f.has("attn_logit_softcapping") or silent_gemma2
    experts = model_type in families.PEFT_REACHES_EXPERTS
    silent_act = families.ACTIVATION.get(model_type, "")
    composed = f.text("activation_function", "hidden_act", "hidden_activation", default=silent_act) in families.COMPOSED
    dropout, silent = families.RESIDUAL_DROPOUT.get(model_type, ("", 0.0))
    details: dict[str, Any] = {
        "norm": families.norm_of(model_type),
        "score_softcap": softcap,
        "softmax_fp32": model_type not in families.SOFTMAX_AS_IS,
        "score_dropout": model_type in families.DROPS_SCORES and f.number("attn_pdrop", default=0.1) > 0,
        "activation_tensors": families.GATED_TENSORS.get(model_type, 4 if composed else 1),
        "fused_qkv": model_type in families.FUSED_QKV,
        "residual_dropout": f.number(dropout, default=silent) > 0,
        "router_fp32": model_type in families.ROUTER_FP32,
    }

    def detailed(layer: Layer) -> Layer:
        linears = tuple(_reached(m) for m in layer.linears) if experts else layer.linears
        return replace(layer, linears=linears, **details)

    return replace(shape, layers=tuple(map(detailed, shape.layers)))


def _reached(linear: Linear) -> Linear:
    """A fused expert tensor with the ranks that peft's LoRA on it has; a module whose name peft takes for one."""
    if linear.role != "expert" or linear.is_module:
        renamed = linear.role in ("mlp", "shared_expert") and linear.name in families.PEFT_RENAMES
        return replace(linear, renamed=renamed)
    return replace(linear, adapter_ranks=2 if linear.name == "gate_up_proj" else 1)


def from_config(config: dict[str, Any], id: str) -> Model:
    """The Model of a parsed config.json; `id` names it in answers and complaints.

    native_dtype is what the file says, else float32, the dtype in which a checkpoint without the key was saved.
    Raises UnsupportedModel when it is no causal language model or nothing here reads its model_type, and
    InvalidInput naming the key when a value is missing or not allowed.
    """
    f = Fields(config, id)
    model_type, architecture = f.text("model_type"), _architecture(f)
    if not model_type:
        raise InvalidInput(f"{id}: model_type is missing", expected="the config.json of a language model")
    if f.flag("is_encoder_decoder"):
        raise _unsupported(f, model_type, f"{architecture or model_type} is an encoder-decoder")
    shape, text, how = _shape(f, model_type, architecture)
    stored = _quantization(f) or _quantization(text)
    dtype = f.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype")
    shape = _with_details(shape, text, text.text("model_type") or model_type)
    return Model.model_construct(  # Fields has checked every value; building the validator costs 50 ms of start-up
        id=id,
        model_type=model_type,
        architecture=architecture,
        shape=shape,
        max_position_embeddings=text.optional(
            "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"
        ),
        native_dtype=dtype or ("bfloat16" if stored else "float32"),
        stored_quantization=stored,
        config=config,
        source=how,
    )
