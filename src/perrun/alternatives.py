"""Other jobs that a user may accept: each changes what is learned, says what it changes, and is never taken unasked."""

from collections.abc import Iterator
from typing import Any

from perrun.terms import Job

SHORTEST = 512  # tokens of a row below which halving it is no longer offered
SMALLEST_RANK = 8

Change = tuple[dict[str, Any], str]


def alternatives(job: Job) -> Iterator[Change]:
    """Changes of fields of the job, and what each does to the training."""
    yield from _methods(job)
    if job.adapters and job.lora_rank > SMALLEST_RANK:
        yield {"lora_rank": job.lora_rank // 2}, "adapters of half the rank: less can be learned"
    if job.seq_len >= 2 * SHORTEST:
        yield {"seq_len": job.seq_len // 2}, f"rows are cut at {job.seq_len // 2} tokens"
    if job.method == "full" and job.optimizer == "adamw":
        yield {"optimizer": "adamw-8bit"}, "moments in 8 bits (arXiv 2110.02861)"
    if job.precision.startswith("bf16") and job.method in ("full", "lora"):
        yield {"precision": "fp8"}, "matrix products in 8 bits, on cards that have them"
    if job.epochs > 1:
        yield {"epochs": job.epochs - 1 if job.epochs >= 2 else 1.0}, "one pass over the data less"


def _methods(job: Job) -> Iterator[Change]:
    frozen = "the base is frozen, adapters are trained"
    packed = "the base is stored in 4 bits (arXiv 2305.14314)"
    if job.method == "full":
        yield {"method": "lora"}, frozen
        yield {"method": "qlora"}, f"{frozen}; {packed}"
    elif job.method in ("lora", "lora-int8"):
        yield {"method": "qlora"}, packed
    elif job.method == "dora":
        yield {"method": "qdora"}, packed
