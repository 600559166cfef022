"""The real model and the real adapters, built from a config alone: on the meta device, then as fake tensors."""

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from perrun.errors import InvalidInput, UnsupportedModel
from perrun.trace import quant
from perrun.trace.cuda_ops import flash_attention
from perrun.trace.experts import as_modules
from perrun.trace.net import Net, library
from perrun.trace.recipe import Recipe

if TYPE_CHECKING:
    from perrun.trace.step import Request

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
KERNEL = "perrun_kernel"  # our flash attention among transformers' attention functions
_TARGETS = {
    "attn-qv": ("q_proj", "v_proj"),
    "attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
_FUSED = ("c_attn", "qkv_proj", "query_key_value")  # one matrix for queries, keys and values
_OUTPUT = ("out_proj", "dense")  # other names of o_proj


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _register_kernel() -> None:
    masks = library("transformers.masking_utils")
    library("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS.register(KERNEL, flash_attention)
    masks.ALL_MASK_ATTENTION_FUNCTIONS.register(KERNEL, masks.flash_attention_mask)


def _from_config(config: Mapping[str, Any], dtype: torch.dtype, kernel: str) -> Net:
    transformers = library("transformers")
    facts = {k: v for k, v in config.items() if k not in ("model_type", "quantization_config", "auto_map")}
    cfg = transformers.AutoConfig.for_model(config["model_type"], **facts)
    text_only = type(cfg) in transformers.AutoModelForCausalLM._model_mapping
    family = transformers.AutoModelForCausalLM if text_only else transformers.AutoModelForImageTextToText
    cfg.use_cache = False
    with torch.device("meta"), _default_dtype(dtype):
        try:
            return family.from_config(cfg, dtype=dtype, attn_implementation=kernel)
        except KeyError:  # a family that picks a class by the kernel's name (falcon): its sdpa class runs flash too
            if kernel != KERNEL:
                raise
            return family.from_config(cfg, dtype=dtype, attn_implementation="sdpa")


def skeleton(config: Mapping[str, Any], recipe: Recipe, attention: str) -> Net:
    """The causal language model of a config.json on the meta device, in training mode.

    Raises UnsupportedModel when transformers has no code for it, InvalidInput when its code has no such attention.
    """
    _register_kernel()
    kernel = attention if attention in ("eager", "sdpa") else KERNEL
    try:
        model = _from_config(config, DTYPES[recipe.weights], kernel)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise UnsupportedModel(
            f"transformers cannot build model type {config.get('model_type')!r} from its config ({reason})",
            hint="leave --trace out: the closed form needs no modelling code",
        ) from error
    if kernel == KERNEL and not model._supports_flash_attn:
        raise InvalidInput(f"transformers' {type(model).__name__} has no flash attention", expected="eager or sdpa")
    for module in model.modules():
        inner: Any = getattr(module, "config", None)
        if hasattr(inner, "_experts_implementation"):
            inner._experts_implementation = "grouped_mm" if recipe.experts == "modules" else recipe.experts
    if recipe.experts == "modules":
        as_modules(model)
    model.train()
    return model


def targets(model: Net, wanted: str) -> list[str] | str:
    """Module names for peft: all-linear, attn, attn-qv (separate or fused projections), or a list."""
    if wanted == "all-linear":
        return wanted
    if wanted not in _TARGETS:
        return [name.strip() for name in wanted.split(",")]
    present = {str(name).rpartition(".")[2] for name, _ in model.named_modules()}
    names = (*_TARGETS[wanted], *_FUSED)
    if wanted == "attn" and "o_proj" not in present:
        names = (*names, *_OUTPUT)
    return [name for name in names if name in present]


def _with_adapters(model: Net, request: "Request", recipe: Recipe) -> Net:
    """The model under peft's LoRA or DoRA adapters. Raises InvalidInput for targets that peft refuses."""
    peft = library("peft")
    lora = peft.LoraConfig(
        r=request.lora_rank,
        lora_alpha=request.lora_rank,
        lora_dropout=recipe.lora_dropout,
        target_modules=targets(model, request.lora_targets),
        use_dora=request.method in ("dora", "qdora"),
        task_type="CAUSAL_LM",
    )
    try:
        with torch.device("meta"), quant.dequantisable():
            adapted = peft.get_peft_model(model, lora)
    except ValueError as error:
        raise InvalidInput(f"peft refuses lora_targets {request.lora_targets} on this model ({error})") from error
    _check_routers(adapted, request.lora_targets)
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad and "magnitude" not in name:
            parameter.data = parameter.data.to(DTYPES[recipe.adapter_dtype])
    return adapted


def _check_routers(adapted: Net, wanted: str) -> None:
    """Raises InvalidInput where an adapter stands on a router that is an nn.Linear but gives scores and logits.

    peft's layer then asks a tuple for its dtype, and the first step of the real training fails too.
    """
    for name, module in adapted.named_modules():
        base = getattr(module, "base_layer", None)
        if isinstance(base, nn.Linear) and type(base).__name__.endswith("Router"):
            raise InvalidInput(
                f"peft's LoRA cannot run on {name.removeprefix('base_model.model.')}, which lora_targets {wanted} hits",
                expected="targets without routers: attn, or module names joined by ','",
            )


def build(request: "Request", recipe: Recipe) -> Net:
    """Base, quantisation, preparation and adapters in the order in which a training script does it; on meta."""
    model = skeleton(request.config, recipe, request.attention)
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
    return _with_adapters(model, request, recipe)


def materialise(model: Net, watch: Callable[[torch.Tensor, str], Any]) -> None:
    """Replace meta tensors by fake ones (inside a FakeTensorMode), shared ones once; report each to `watch`."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module._parameters.items()):
            if old is None:
                continue
            if id(old) not in made:
                made[id(old)] = nn.Parameter(torch.empty(old.shape, dtype=old.dtype), requires_grad=old.requires_grad)
                watch(made[id(old)], "weights")
            module._parameters[name] = made[id(old)]
        for name, old in list(module._buffers.items()):
            if old is not None:
                module._buffers[name] = torch.empty(old.shape, dtype=old.dtype)
                watch(module._buffers[name], "weights")
    quant.materialise(model, watch)
