"""The real model and the real adapters, built from a config alone: on the meta device, then as fake tensors."""

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from perrun.errors import UnsupportedModel
from perrun.trace import quant
from perrun.trace.experts import as_modules
from perrun.trace.recipe import Recipe

if TYPE_CHECKING:
    from perrun.trace.step import Request

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
ATTENTION = "perrun_kernel"  # our name among transformers' attention functions
_TARGETS = {
    "attn-qv": ("q_proj", "v_proj"),
    "attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
_FUSED_TARGETS = {
    "attn-qv": ("c_attn", "qkv_proj", "query_key_value"),
    "attn": ("c_attn", "qkv_proj", "query_key_value"),
}


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def attention_name(kernel: str) -> str:
    """transformers' name for an attention kernel of ours; registers the flash stand-in."""
    if kernel in ("eager", "sdpa"):
        return kernel
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from perrun.trace.cuda_ops import flash_attention

    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, flash_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, flash_attention_mask)
    return ATTENTION


def skeleton(config: Mapping[str, Any], dtype: torch.dtype, attention: str, experts: str) -> nn.Module:
    """The causal language model of a config.json on the meta device. Raises UnsupportedModel."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    facts = {k: v for k, v in config.items() if k not in ("model_type", "quantization_config", "auto_map")}
    kernel = attention_name(attention)
    try:
        cfg = AutoConfig.for_model(config["model_type"], **facts)
        family = (
            AutoModelForCausalLM if type(cfg) in AutoModelForCausalLM._model_mapping else AutoModelForImageTextToText
        )
        cfg.use_cache = False
        with torch.device("meta"), _default_dtype(dtype):
            model = family.from_config(cfg, dtype=dtype, attn_implementation=kernel)
    except Exception as error:
        raise UnsupportedModel(
            f"transformers cannot build model type {config.get('model_type')!r} from its config "
            f"({type(error).__name__}: {str(error).splitlines()[0][:200]})",
            hint="leave --trace out: the closed form needs no modelling code",
        ) from error
    for module in model.modules():
        inner = getattr(module, "config", None)
        if inner is not None and hasattr(inner, "_experts_implementation"):
            inner._experts_implementation = "grouped_mm" if experts == "modules" else experts
    if experts == "modules":
        as_modules(model)
    model.train()
    return model


def targets(model: nn.Module, wanted: str) -> list[str] | str:
    """Module names for peft: all-linear, attn, attn-qv (separate or fused projections), or a list."""
    if wanted == "all-linear":
        return wanted
    if wanted not in _TARGETS:
        return [name.strip() for name in wanted.split(",")]
    present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    found = [name for name in (*_TARGETS[wanted], *_FUSED_TARGETS[wanted]) if name in present]
    if wanted == "attn" and "o_proj" not in present:
        found += [name for name in ("out_proj", "dense") if name in present]
    return found


def with_adapters(model: nn.Module, request: "Request", recipe: Recipe) -> nn.Module:
    """The model under peft's LoRA or DoRA adapters; frozen base."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=request.lora_rank,
        lora_alpha=request.lora_rank,
        lora_dropout=recipe.lora_dropout,
        target_modules=targets(model, request.lora_targets),
        use_dora=request.method in ("dora", "qdora"),
        task_type="CAUSAL_LM",
    )
    with torch.device("meta"), quant.dequantisable():
        adapted = get_peft_model(model, lora)
    dtype = DTYPES[recipe.adapter_dtype]
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad and "magnitude" not in name:
            parameter.data = parameter.data.to(dtype)
    return adapted


def build(request: "Request", recipe: Recipe) -> nn.Module:
    """Base, quantisation, preparation and adapters in the order in which a training script does it; on meta."""
    model = skeleton(request.config, DTYPES[recipe.weights], request.attention, recipe.experts)
    if request.method in ("qlora", "qdora"):
        model = quant.to_4bit(model)
    elif request.method == "lora-int8":
        model = quant.to_8bit(model)
    if request.method == "full":
        return model
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if recipe.kbit != "none":
        quant.prepare(model, recipe.kbit)
    return with_adapters(model, request, recipe)


def decoder(model: nn.Module) -> nn.Module:
    """The stack of layers under the head, under adapters or not."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    body = getattr(inner, inner.base_model_prefix)
    return getattr(body, "language_model", body)


def layers(model: nn.Module) -> nn.ModuleList:
    """The decoder layers: the longest list of modules that the decoder itself holds."""
    lists = [child for child in decoder(model).children() if isinstance(child, nn.ModuleList)]
    return max(lists, key=len)


def vocabulary(model: nn.Module) -> int:
    """Rows of the head."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return int(inner.get_output_embeddings().weight.shape[0])


def materialise(model: nn.Module, watch: Callable[[torch.Tensor, str], Any]) -> None:
    """Replace meta tensors by fake ones (inside a FakeTensorMode), shared ones once; report each to `watch`."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module._parameters.items()):
            if old is None:
                continue
            if id(old) not in made:
                new = nn.Parameter(torch.empty(old.shape, dtype=old.dtype), requires_grad=old.requires_grad)
                made[id(old)] = new
                watch(new, "adapters" if old.requires_grad and hasattr(model, "peft_config") else "weights")
            module._parameters[name] = made[id(old)]
        for name, old in list(module._buffers.items()):
            if old is not None:
                module._buffers[name] = torch.empty(old.shape, dtype=old.dtype)
                watch(module._buffers[name], "weights")  # type: ignore[arg-type]
    quant.materialise(model, watch)
