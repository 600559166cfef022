"""The stack's profile as a measured run really had it: the notes and the versions say where it departed."""

import re
from dataclasses import replace
from typing import Any

from perrun.facts.stacks import Stack
from perrun.runs.notes import Variant

# transformers 4.46 moved the loss out of the model's forward: the 16-bit logits stayed in the output while the loss
# worked on an fp32 copy and on a shifted copy of that; before, the model replaced them. Since 4.51 labels are shifted
# instead of logits (huggingface/transformers, loss/loss_utils.py).
KEEPS_LOGITS = ((4, 46), (4, 51))


def _transformers_version(framework_version: str) -> tuple[int, int] | None:
    found = re.search(r"transformers (\d+)\.(\d+)", framework_version)
    return (int(found[1]), int(found[2])) if found else None


def adjusted(stack: Stack, variant: Variant, framework_version: str) -> Stack:
    """`stack` with what the run's variant and versions change."""
    changes: dict[str, Any] = {}
    if variant.kernels is not None:
        changes["kernels"] = variant.kernels
    if variant.loss is not None:
        changes["loss"] = {"fast": "triton"}.get(variant.loss, variant.loss)
    if variant.fused_lora:
        changes["lora_dropout"] = 0.0  # fused LoRA kernels support none
    if variant.kbit_prepared is not None:
        changes["kbit_upcast"] = "norms" if variant.kbit_prepared else "no"
    if variant.experts is not None:
        changes["experts"] = "loop" if variant.experts == "loop" else "grouped"
    if variant.engine is not None:
        changes["engine"] = variant.engine
    if variant.reentrant is not None:
        changes["reentrant"] = variant.reentrant
    if variant.optimizer_impl is not None:
        changes["optimizer_impl"] = variant.optimizer_impl
    if variant.experts_quantized:
        changes["quantises_experts"] = True
    if variant.autocast is not None:
        changes["fsdp_upcasts"] = variant.autocast
    version = _transformers_version(framework_version)
    if version is not None:
        changes["keeps_logits"] = KEEPS_LOGITS[0] <= version < KEEPS_LOGITS[1]
    return replace(stack, **changes)
