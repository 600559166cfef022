"""What the traced step does beyond the job and the layout: what a training stack decides when nobody asks."""

from dataclasses import dataclass
from typing import Literal

from perrun.errors import InvalidInput
from perrun.facts import stacks
from perrun.terms import Job, Strategy

Loss = Literal["plain", "chunked", "fused", "tiled"]
Logits = Literal["installed", "shifted", "inline_float", "inline"]
Kbit = Literal["none", "peft", "norms"]
Kernels = Literal["eager", "liger"]

_KBIT: dict[str, Kbit] = {"no": "none", "all": "peft", "norms": "norms"}
_LOSS: dict[str, tuple[Loss, Logits]] = {
    "plain": ("plain", "installed"),
    "native": ("plain", "inline"),
    "chunked": ("chunked", "installed"),
    "fused": ("plain", "installed"),  # asked for by Strategy.fused_ce
}
_ACCELERATE = ("trl", "transformers", "fms-acceleration", "llamafactory", "axolotl", "ms-swift")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices of a training stack that change bytes.

    weights: dtype of the base's weights (of what is not quantised, for a quantised base). autocast: the forward
    runs under bf16 autocast. adapter_dtype: of LoRA matrices. kbit: what a quantised base's other parameters become:
    none (as loaded), peft (`prepare_model_for_kbit_training`: all to float32), norms (the same, then trl's
    `peft_module_casting_to_bf16`: embeddings and head back to bf16, so that only norms stay float32).
    loss: plain (all logits), chunked (all logits, float32 by chunks), fused (Liger: no stored logits) or tiled (trl
    from 1.16: no stored logits, recomputed in the backward). logits: what a plain loss copies. installed: as the
    installed transformers does (5.x shifts the labels); shifted: a loss function that copies the float32 logits
    without their last position while the model still holds them in the product's dtype (4.46 to 4.48); inline_float:
    the same in the model's forward, which drops the half-precision ones (to 4.45); inline: the shifted copy without
    float32 (families that never got the loss function, e.g. gpt_bigcode). keeps_logits: the model's outputs live
    until the backward is done. outputs_float32: accelerate turns them to float32 when it autocasts.
    reentrant: kind of checkpointing. optimizer_impl: foreach, fused or loop. kernels: eager, or liger's fused norm,
    rotary embedding and gate. experts: grouped_mm or batched_mm (of transformers 5; its eager loop has shapes
    that only data tell), or modules (transformers 4: each expert a module, that 4-bit loading and adapters reach).
    """

    weights: str = "bf16"
    autocast: bool = False
    adapter_dtype: str = "fp32"
    kbit: Kbit = "none"
    loss: Loss = "plain"
    logits: Logits = "installed"
    keeps_logits: bool = False
    outputs_float32: bool = False
    reentrant: bool = False
    optimizer_impl: str = "foreach"
    lora_dropout: float = 0.0
    kernels: Kernels = "eager"
    experts: str = "grouped_mm"


def of(job: Job, strategy: Strategy) -> Recipe:
    """The recipe of the strategy's framework for this job.

    Raises InvalidInput for a precision, kernels or loss that are not traced, UnknownName for the framework.
    """
    stack = stacks.get(strategy.framework)
    if job.precision not in ("bf16-true", "bf16-mixed", "fp32"):
        raise _not_traced(f"precision {job.precision}", "bf16-true, bf16-mixed or fp32")
    if stack.kernels not in ("eager", "liger"):
        raise _not_traced(
            f"{stack.framework} runs {stack.kernels} kernels, which", "a stack with eager or liger kernels"
        )
    if stack.loss not in _LOSS:
        raise _not_traced(f"{stack.framework} has its own {stack.loss} loss, which", ", ".join(_LOSS))
    quantised = job.method in ("qlora", "qdora", "lora-int8")
    mixed = job.precision == "bf16-mixed"
    autocast = (mixed or stack.autocast) and job.precision != "fp32"
    if quantised and stack.kbit_saves_inputs:
        raise _not_traced(f"bitsandbytes before 0.42, on which {stack.framework} ran,", "a stack on a later one")
    kind, logits = _LOSS[stack.loss]
    return Recipe(
        weights="fp32" if job.precision == "fp32" or (mixed and not quantised) else "bf16",
        autocast=autocast,
        adapter_dtype=stack.adapter_dtype,
        kbit=_KBIT[stack.kbit_upcast] if quantised else "none",
        loss="fused" if strategy.fused_ce else kind,
        logits=logits,
        keeps_logits=stack.keeps_logits,
        outputs_float32=autocast and stack.framework in _ACCELERATE,
        reentrant=stack.reentrant,
        optimizer_impl=stack.optimizer_impl,
        lora_dropout=stack.lora_dropout,
        kernels="liger" if stack.kernels == "liger" else "eager",
        experts="modules" if stack.experts == "loop" else "grouped_mm",
    )


def _not_traced(what: str, expected: str) -> InvalidInput:
    return InvalidInput(f"{what} is not traced", expected=expected, hint="leave --trace out: the closed form covers it")
