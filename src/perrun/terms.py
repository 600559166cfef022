"""The eight nouns, each field with its unit and meaning; the glossary and every JSON Schema come from here.

The axis that keeps them few: does it change the loss curve? Then it belongs to the Job.
Does it only change bytes and seconds? Then it belongs to the Strategy.
"""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perrun.shapes import Shape

Method = Literal["full", "lora", "qlora", "lora-int8", "dora", "qdora", "freeze"]
Objective = Literal["sft", "pretrain", "dpo", "orpo", "kto", "rm", "ppo", "grpo"]
Precision = Literal["bf16-true", "bf16-mixed", "fp16-mixed", "fp32", "fp8", "mxfp8", "nvfp4"]
Optimizer = Literal[
    "adamw",
    "adamw-8bit",
    "paged-adamw-8bit",
    "paged-adamw-32bit",
    "adamw-4bit",
    "adafactor",
    "sgd",
    "lion",
    "lion-8bit",
]
Checkpointing = Literal["none", "selective", "full", "unsloth"]
AttentionKernel = Literal["eager", "sdpa", "flash2", "flash3", "te"]
Offload = Literal["none", "params", "optimizer", "both"]
Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2"]
Interconnect = Literal["none", "nvlink", "pcie", "ib", "ethernet"]
Term = Literal["on-demand", "interruptible", "reserved", "prepaid-block", "market-floor", "owned"]

Positive = Annotated[int, Field(gt=0)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Noun(BaseModel):
    """Frozen and strict: an unknown field is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())


class Source(Noun):
    """Where a fact comes from."""

    id: str = Field(description="short name that rows refer to")
    title: str = Field(description="what the publication is")
    url: str = Field(description="public address, or repo:path")
    read: str = Field(default="", description="date read or as-of date")


class GPU(Noun):
    """One kind of accelerator; every figure is DENSE (never 2:4 sparsity). None means not known."""

    id: str = Field(description="canonical name: H100-SXM-80GB")
    vendor: str
    marketing_name: str
    architecture: str
    compute_capability: float | None = Field(default=None, description="CUDA compute capability, e.g. 9.0")
    form_factor: str = Field(default="", description="SXM, PCIe, ...")
    memory_gb: float = Field(description="nominal memory [GB as sold]")
    memory_gib_usable: float | None = Field(default=None, description="nvidia-smi total [GiB]")
    cuda_visible_gib: float | None = Field(default=None, description="what an allocator can reach at most [GiB]")
    bandwidth_gb_s: float | None = Field(default=None, description="memory bandwidth [GB/s]")
    fp32_tflops: float | None = None
    tf32_dense_tflops: float | None = None
    fp16_dense_tflops: float | None = None
    bf16_dense_tflops: float | None = None
    fp8_dense_tflops: float | None = None
    fp4_dense_tflops: float | None = None
    nvlink_gb_s: float | None = Field(default=None, description="total bidirectional per GPU [GB/s]")
    pcie: str = Field(default="", description="generation and lanes, e.g. '4 x16'")
    tdp_w: float | None = Field(default=None, description="board power [W]")
    supports_bf16: bool = False
    sm_count: int | None = None
    boost_mhz: float | None = None
    source: str
    notes: str = ""


class Model(Noun):
    """A language model by the facts of its `config.json`, and the shape that physics walks over."""

    id: str = Field(description="Hugging Face id, or the path that it was read from")
    model_type: str
    architecture: str = ""
    shape: Shape
    max_position_embeddings: int | None = Field(default=None, description="longest context [tokens]")
    native_dtype: str = "bfloat16"
    stored_quantization: str | None = Field(
        default=None, description="quantisation that the published weights already carry (gptq, awq, mxfp4, fp8, ...)"
    )
    gated: bool = Field(default=False, description="the hub asks for a licence first")
    license: str = ""
    config: dict[str, Any] = Field(default_factory=dict, description="the config.json facts, for the traced reference")
    source: str = ""

    @property
    def total_params(self) -> int:
        return self.shape.total_params


class Job(Noun):
    """What is to be trained. Everything here changes the loss curve."""

    model: str = Field(description="Hugging Face id, or path to a config.json or its folder")
    method: Method = Field(default="lora", description="what is trained and how the base is stored")
    objective: Objective = "sft"
    precision: Precision = Field(
        default="bf16-true", description="bf16-true: weights stored in bf16; mixed: fp32 weights"
    )
    optimizer: Optimizer = "adamw"
    lora_rank: Annotated[int, Field(gt=0, le=65536)] = 16
    lora_targets: str = Field(default="all-linear", description="attn-qv, attn, all-linear, or names joined by ','")
    examples: int = Field(default=1000, gt=0, le=10**12, description="rows of the data set")
    tokens_per_example: int = Field(default=1024, gt=0, le=10**8, description="mean tokens of a row")
    longest_example: Positive | None = Field(default=None, description="tokens of the longest row; default: the cap")
    epochs: Annotated[float, Field(gt=0, le=10_000)] = 1
    seq_len: int = Field(default=2048, gt=0, le=2**24, description="cap on the tokens of a sequence")
    packing: bool = Field(default=True, description="rows are joined to sequences of exactly seq_len")
    global_batch: int = Field(default=16, gt=0, le=10**6, description="sequences per optimizer step over all GPUs")

    @property
    def tokens(self) -> float:
        """Tokens trained over in the run, as users count them (no padding): examples x tokens x epochs."""
        return self.examples * self.tokens_per_example * self.epochs

    @property
    def adapters(self) -> bool:
        return self.method in ("lora", "qlora", "lora-int8", "dora", "qdora")


class Strategy(Noun):
    """How the job is laid out. Everything here changes only bytes and seconds."""

    micro_batch: Positive = Field(default=1, description="sequences per GPU per forward")
    grad_accum: Positive = 1
    checkpointing: Checkpointing = "full"
    attention: AttentionKernel = "sdpa"
    fused_ce: bool = Field(default=False, description="the loss is computed without storing all logits")
    compile: bool = False
    offload: Offload = "none"
    sharding: Sharding = "none"
    tp: Positive = Field(default=1, description="tensor parallel degree")
    pp: Positive = Field(default=1, description="pipeline parallel degree")
    cp: Positive = Field(default=1, description="context parallel degree")
    ep: Positive = Field(default=1, description="expert parallel degree")
    framework: str = Field(default="trl", description="training stack, a row of stacks.csv")


class Rig(Noun):
    """What it runs on."""

    gpu: str = Field(description="canonical GPU name")
    n_gpus: int = Field(default=1, gt=0, le=10**6, description="GPUs over all nodes")
    n_nodes: Positive = 1
    interconnect: Interconnect | None = Field(
        default=None, description="between the GPUs of a node; None: as the GPU has"
    )
    usable_gib: Amount | None = Field(default=None, description="memory per GPU that an allocator can reach [GiB]")
    host_ram_gib: Amount | None = Field(default=None, description="RAM of one node [GiB]; None: not known")
    power_limit_w: Amount | None = Field(default=None, description="board power limit if below the card's [W]")

    @model_validator(mode="after")
    def _whole_nodes(self) -> "Rig":
        if self.n_gpus % self.n_nodes:
            raise ValueError(f"n_gpus ({self.n_gpus}) must be a multiple of n_nodes ({self.n_nodes})")
        return self


class Memory(Noun):
    """Peak of one GPU [GiB]: what the allocator handed out, what it reserved, what nvidia-smi shows."""

    allocated_gib: float
    reserved_gib: float
    device_gib: float
    low_gib: float = Field(description="device, lower end of the 90 % range")
    high_gib: float = Field(description="device, upper end of the 90 % range")
    phase: str = Field(description="phase of the step that sets the peak")
    lines: dict[str, float] = Field(description="named lines; they sum to device_gib")


class Note(Noun):
    """Where a figure comes from: the law, the fact or the assumption behind one line."""

    line: str
    law: str
    source: str = ""


class Remedy(Noun):
    """A change of strategy that makes a job fit, and what it costs in time."""

    change: dict[str, Any] = Field(description="strategy fields and their new values")
    device_gib: float
    fits_probability: Share
    tokens_per_s: float
    slower: float = Field(description="time of a step over the time without the change; below 1 is faster")


class Estimate(Noun):
    """What will happen to a job on a rig. tokens_per_s is the total over all GPUs, tokens as users count them."""

    memory: Memory
    host_ram_gib: float = Field(description="RAM of one node at load and while training [GiB]")
    tokens_per_s: float
    tokens_per_s_low: float = Field(description="lower end of the 80 % range")
    tokens_per_s_high: float
    step_s: float = Field(description="seconds of one optimizer step")
    time_lines: dict[str, float] = Field(description="named parts of one optimizer step [s]; they sum to step_s")
    fits_probability: Share
    why_not: str | None = None
    assumed: dict[str, Any] = Field(default_factory=dict, description="settings that the stack's profile filled in")
    trace: list[Note] = Field(default_factory=list[Note])
    remedies: list[Remedy] = Field(
        default_factory=list[Remedy], description="changes that make it fit, least costly first"
    )


class Offer(Noun):
    """A rig with a price. usd_per_hour is for the whole rig."""

    provider: str
    instance: str = ""
    region: str = ""
    term: Term = "on-demand"
    usd_per_hour: Annotated[float, Field(gt=0)]
    rig: Rig
    billing_increment_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="time is billed in whole steps of this [s]; None: not known"
    )
    minimum_s: Annotated[float, Field(ge=0)] = Field(default=0, description="least time billed [s]")
    billed_while_stopped: str = Field(default="", description="what the meter counts while the machine is stopped")
    storage_usd_per_gb_month: float | None = None
    egress_usd_per_gb: float | None = None
    deposit_usd: float | None = Field(default=None, description="smallest payment or balance that starts a machine")
    boot_s: float | None = Field(default=None, description="from order to shell, as the provider states [s]")
    interruption_class: str | None = Field(default=None, description="share interrupted in a month, as published")
    ram_gib: float | None = Field(default=None, description="RAM of one node as sold [GiB]")
    mtbi_hours: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="your own mean time between interruptions [h]"
    )
    block_gpu_hours: tuple[Positive, ...] = Field(
        default=(), description="sizes of the blocks in which GPU-hours are sold; any mix can be bought"
    )
    reservation_hours: tuple[float, ...] = Field(
        default=(), description="lengths that can be reserved [h]; a run pays the shortest that holds it"
    )
    note: str = Field(default="", description="what a buyer must know")
    observed_at: date
    source: str


class CostLine(Noun):
    """One line of the bill: usd = quantity x the unit's price."""

    name: str
    quantity: float
    unit: str
    usd: float


class Plan(Noun):
    """An Estimate bought through an Offer."""

    offer: Offer
    strategy: Strategy
    estimate: Estimate
    hours: float
    hours_low: float
    hours_high: float
    usd: float
    usd_low: float
    usd_high: float
    usd_per_million_tokens: float
    cost_lines: list[CostLine]
    risk: str = Field(default="", description="what may go wrong with this offer, in words")


class Rejected(Noun):
    """A rig that was considered and dropped, with the nearest miss."""

    rig: Rig
    reason: str
    needs_gib: float | None = None
    has_gib: float | None = None


class PlanAnswer(Noun):
    """The answer of `plan`: ranked plans, what was rejected and why, the verdict in one line."""

    job: Job
    plans: list[Plan]
    rejected: list[Rejected]
    verdict: str
    assumptions: list[str]
    prices_as_of: date | None = None


class FitCell(Noun):
    """One method on one rig: what its best strategy needs of what the card has, and what a run costs there."""

    rig: Rig
    method: str
    mark: Literal["yes", "tight", "no"]
    needs_gib: float | None = Field(description="device memory of one GPU; None: the rig cannot run the method")
    has_gib: float | None
    fits_probability: Share
    usd_per_hour: float | None = Field(description="cheapest offer of the whole rig")
    usd_per_run: float | None
    why_not: str | None = None


class FitAnswer(Noun):
    """Methods x rigs."""

    job: Job
    methods: list[str]
    cells: list[FitCell]


class Side(Noun):
    """One of two rigs compared: what it costs, how it is laid out, what bounds it."""

    rig: Rig
    precision: Precision
    usd_per_gpu_hour: float
    price_of: str = Field(description="where the price comes from")
    hours: float
    usd: float = Field(description="training hours x price x GPUs")
    tokens_per_s: float
    strategy: Strategy
    bound_by: str = Field(description="the part of a step that takes the most time, with its share")


class Comparison(Noun):
    """The break-even between two rigs on one job: rent B only if the speed-up beats the price ratio."""

    job: Job
    a: Side
    b: Side
    speedup: float = Field(description="tokens/s of B over A")
    speedup_low: float = Field(description="lower end of the 80 % range")
    speedup_high: float
    price_ratio: float = Field(description="price of B over A: the speed-up at which both cost the same")
    usd_a: float
    usd_b: float
    probability_b_cheaper: Share
    flip_price_b: float = Field(description="price of B per GPU-hour at which the verdict flips [USD]")
    flip_price_b_low: float
    flip_price_b_high: float
    hours_saved: float = Field(description="wall-clock hours that B saves on this run")
    hour_worth: float | None = Field(default=None, description="what a saved hour must be worth for B to pay [USD]")
    verdict: str
    fp8: "Comparison | None" = Field(default=None, description="the same with FP8 on B, where B can")
    fp8_note: str = ""


class Run(Noun):
    """An Estimate that happened: the columns of the evidence schema (runs/SCHEMA.md), measured."""

    line: int
    source: str
    path: str = Field(default="", description="file that the row was read from")
    columns: dict[str, str]


class Calibration(Noun):
    """One fitted parameter of the laws."""

    parameter: str
    value: float
    standard_error: float
    n: int
    fitted_on: str = Field(description="hash of the runs it was fitted on")
