"""A job laid out on a rig, as the numbers that the laws read: scalars for one question, arrays for a search.

Categories are single values, so that a law reads as the physics it is; every number may be a NumPy array, all of
one length, so that a search asks a million questions in one call. The search groups its candidates by category.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun.terms import Job, Rig, Strategy

# Fields of a Setting that are numbers in every search. Degrees are too, but laws skip those that are 1.
NUMBERS = ("lora_rank", "micro_batch", "grad_accum", "seq_len", "mean_len", "real_len", "n_gpus", "n_nodes")
Number = float | int | npt.NDArray[np.float64]  # a scalar, or one value per candidate


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything about a question but the model's shape and the stack's profile.

    seq_len: tokens of the longest sequence as the GPU sees it (sets the peak); mean_len: tokens of the mean
    sequence as the GPU sees it, padding included (sets the speed); real_len: the same without padding, as users
    count tokens. For packed data the three are equal. varying: the length of rows differs from step to step.
    virtual: interleaved pipeline stages per rank. document_len: mean tokens of the rows inside a packed sequence,
    None: the whole sequence is one.
    """

    method: str
    objective: str
    precision: str
    optimizer: str
    lora_targets: str
    packing: bool
    checkpointing: str
    attention: str
    fused_ce: bool
    compile: bool
    offload: str
    sharding: str
    framework: str
    lora_rank: Number
    micro_batch: Number
    grad_accum: Number
    seq_len: Number
    mean_len: Number
    real_len: Number
    n_gpus: Number
    n_nodes: Number
    tp: Number = 1
    pp: Number = 1
    cp: Number = 1
    ep: Number = 1
    varying: bool = False
    virtual: Number = 1
    document_len: Number | None = None

    @property
    def adapters(self) -> bool:
        return self.method in ("lora", "qlora", "lora-int8", "dora", "qdora")

    @property
    def data_parallel(self) -> Number:
        """Ranks that see different sequences (expert parallel ranks do)."""
        return self.n_gpus / (self.tp * self.pp * self.cp)

    @property
    def gpus_per_node(self) -> Number:
        return self.n_gpus / self.n_nodes

    def with_(self, **changes: Any) -> "Setting":
        return replace(self, **changes)


def of(job: Job, strategy: Strategy, rig: Rig) -> Setting:
    """The numbers of one job, strategy and rig.

    Unpacked rows are padded to the longest of their micro batch; the mean over batches is not known, so the mean
    row is what the GPU sees at micro_batch 1, and the caller that knows the lengths replaces `mean_len`.
    """
    longest = min(job.longest_example or job.seq_len, job.seq_len)
    mean = min(job.tokens_per_example, longest)
    return Setting(
        method=job.method,
        objective=job.objective,
        precision=job.precision,
        optimizer=job.optimizer,
        lora_targets=job.lora_targets,
        packing=job.packing,
        checkpointing=strategy.checkpointing,
        attention=strategy.attention,
        fused_ce=strategy.fused_ce,
        compile=strategy.compile,
        offload=strategy.offload,
        sharding=strategy.sharding,
        framework=strategy.framework,
        lora_rank=job.lora_rank,
        micro_batch=strategy.micro_batch,
        grad_accum=strategy.grad_accum,
        seq_len=job.seq_len if job.packing else longest,
        mean_len=job.seq_len if job.packing else mean,
        real_len=job.seq_len if job.packing else mean,
        n_gpus=rig.n_gpus,
        n_nodes=rig.n_nodes,
        tp=strategy.tp,
        pp=strategy.pp,
        cp=strategy.cp,
        ep=strategy.ep,
        varying=not job.packing and mean < longest,
        document_len=mean if job.packing else None,
    )


def category(one: Setting) -> tuple[Any, ...]:
    """Everything of a setting but its NUMBERS."""
    names = (field.name for field in fields(Setting) if field.name not in NUMBERS)
    return tuple(getattr(one, name) for name in names)


def stacked(settings: Sequence[Setting]) -> Setting:
    """Settings of one category as one, whose numbers are arrays over them."""
    columns = {name: np.array([getattr(one, name) for one in settings], dtype=float) for name in NUMBERS}
    return settings[0].with_(**columns)
