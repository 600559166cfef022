"""The eight nouns, each field with its unit and meaning; the glossary and every JSON Schema come from here.

The axis that keeps them few: does it change the loss curve? Then it belongs to the Job.
Does it only change bytes and seconds? Then it belongs to the Strategy.
"""

from datetime import date
from typing import Annotated, Any, ClassVar, Literal

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
    LISTED: ClassVar[str] = ""  # the field whose entries are the rows of a table; "": the noun is one row
    COLUMNS: ClassVar[tuple[str, ...]] = ()  # what a notebook shows of each row; (): every field of the noun

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json` and REST say, as plain values."""
        return self.model_dump(mode="json")

    def to_frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Rows with dotted columns ('offer.rig.gpu') as a data frame of pandas, else polars.

        An answer gives what it lists (plans, cells), any other noun itself. Raises Unavailable without either library.
        """
        from perrun.terms import display

        return display.frame(self, library)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from perrun.terms import display

        return display.html(self)


class Source(Noun):
    """Where a fact comes from."""

    id: str = Field(description="short name that rows refer to")
    title: str = Field(description="what the publication is")
    url: str = Field(description="public address, or repo:path")
    read: str = Field(default="", description="date read or as-of date")


class GPU(Noun):
    """One kind of accelerator; every figure is DENSE (never 2:4 sparsity). None means not known."""

    id: str = Field(description="canonical name: H100-SXM-80GB")
    vendor: str = Field(description="who makes it")
    marketing_name: str = Field(description="name as sold")
    architecture: str = Field(description="generation: Hopper, Ada, ...")
    compute_capability: float | None = Field(default=None, description="CUDA compute capability, e.g. 9.0")
    form_factor: str = Field(default="", description="SXM, PCIe, ...")
    memory_gb: float = Field(description="nominal memory [GB as sold]")
    memory_gib_usable: float | None = Field(default=None, description="nvidia-smi total [GiB]")
    cuda_visible_gib: float | None = Field(default=None, description="what an allocator can reach at most [GiB]")
    bandwidth_gb_s: float | None = Field(default=None, description="memory bandwidth [GB/s]")
    fp32_tflops: float | None = Field(default=None, description="[TFLOPS]")
    tf32_dense_tflops: float | None = Field(default=None, description="[TFLOPS]")
    fp16_dense_tflops: float | None = Field(default=None, description="with fp32 accumulation [TFLOPS]")
    bf16_dense_tflops: float | None = Field(default=None, description="with fp32 accumulation [TFLOPS]")
    fp8_dense_tflops: float | None = Field(default=None, description="[TFLOPS]")
    fp4_dense_tflops: float | None = Field(default=None, description="[TFLOPS]")
    nvlink_gb_s: float | None = Field(default=None, description="total bidirectional per GPU [GB/s]")
    pcie: str = Field(default="", description="generation and lanes, e.g. '4 x16'")
    tdp_w: float | None = Field(default=None, description="board power [W]")
    supports_bf16: bool = Field(default=False, description="whether it computes in bf16")
    sm_count: int | None = Field(default=None, description="streaming multiprocessors")
    boost_mhz: float | None = Field(default=None, description="rated boost clock [MHz]")
    source: str = Field(description="where the figures come from")
    notes: str = Field(default="", description="what a reader must know")


class Model(Noun):
    """A language model by the facts of its `config.json`, and the shape that physics walks over."""

    id: str = Field(description="Hugging Face id, or the path that it was read from")
    model_type: str = Field(description="family, as config.json calls it")
    architecture: str = Field(default="", description="class of the modelling code")
    shape: Shape = Field(description="matrices and layers")
    max_position_embeddings: int | None = Field(default=None, description="longest context [tokens]")
    native_dtype: str = Field(default="bfloat16", description="type of the published weights")
    stored_quantization: str | None = Field(
        default=None, description="quantisation that the published weights already carry (gptq, awq, mxfp4, fp8, ...)"
    )
    gated: bool = Field(default=False, description="the hub asks for a licence first")
    license: str = Field(default="", description="of the weights")
    config: dict[str, Any] = Field(default_factory=dict, description="the config.json facts, for the traced reference")
    source: str = Field(default="", description="where the facts come from")

    @property
    def total_params(self) -> int:
        return self.shape.total_params


class Job(Noun):
    """What is to be trained. Everything here changes the loss curve."""

    model: str = Field(description="Hugging Face id, or path to a config.json or its folder")
    method: Method = Field(default="lora", description="what is trained and how the base is stored")
    objective: Objective = Field(default="sft", description="what is optimised")
    precision: Precision = Field(
        default="bf16-true", description="bf16-true: weights stored in bf16; mixed: fp32 weights"
    )
    optimizer: Optimizer = Field(default="adamw", description="what is kept per trained parameter")
    lora_rank: Annotated[int, Field(gt=0, le=65536)] = Field(default=16, description="rank of the adapters")
    lora_targets: str = Field(default="all-linear", description="attn-qv, attn, all-linear, or names joined by ','")
    examples: int = Field(default=1000, gt=0, le=10**12, description="rows of the data set")
    tokens_per_example: int = Field(default=1024, gt=0, le=10**8, description="mean tokens of a row")
    longest_example: Positive | None = Field(default=None, description="tokens of the longest row; default: the cap")
    epochs: Annotated[float, Field(gt=0, le=10_000)] = Field(default=1, description="passes over the data")
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
    grad_accum: Positive = Field(default=1, description="micro batches per optimizer step")
    checkpointing: Checkpointing = Field(default="full", description="what is recomputed in backward")
    attention: AttentionKernel = Field(default="sdpa", description="kernel of the attention")
    fused_ce: bool = Field(default=False, description="the loss is computed without storing all logits")
    compile: bool = Field(default=False, description="torch.compile")
    offload: Offload = Field(default="none", description="what lives in host memory")
    sharding: Sharding = Field(default="none", description="how ranks share weights, gradients and states")
    tp: Positive = Field(default=1, description="tensor parallel degree")
    pp: Positive = Field(default=1, description="pipeline parallel degree")
    cp: Positive = Field(default=1, description="context parallel degree")
    ep: Positive = Field(default=1, description="expert parallel degree")
    framework: str = Field(default="trl", description="training stack, a row of stacks.csv")


class Rig(Noun):
    """What it runs on."""

    gpu: str = Field(description="canonical GPU name")
    n_gpus: int = Field(default=1, gt=0, le=10**6, description="GPUs over all nodes")
    n_nodes: Positive = Field(default=1, description="machines")
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

    def __str__(self) -> str:
        """As people write it: '8x H100-SXM-80GB', '16x H100-SXM-80GB on 2 nodes'."""
        nodes = f" on {self.n_nodes} nodes" if self.n_nodes > 1 else ""
        return f"{self.n_gpus}x {self.gpu}{nodes}"


class Memory(Noun):
    """Peak of one GPU [GiB]: what the allocator handed out, what it reserved, what nvidia-smi shows."""

    allocated_gib: float = Field(description="live tensors at the widest moment")
    reserved_gib: float = Field(description="held by PyTorch's allocator")
    device_gib: float = Field(description="shown by nvidia-smi")
    low_gib: float = Field(description="device, lower end of the 90 % range")
    high_gib: float = Field(description="device, upper end of the 90 % range")
    allocated_low_gib: float = Field(description="allocated, lower end of the 90 % range")
    allocated_high_gib: float = Field(description="allocated, upper end of the 90 % range")
    phase: str = Field(description="phase of the step that sets the peak")
    lines: dict[str, float] = Field(description="named lines; they sum to device_gib")


class Note(Noun):
    """Where a figure comes from: the law, the fact or the assumption behind one line."""

    line: str = Field(description="of memory, or 'time: ' and a line of time")
    law: str = Field(description="how it is computed")
    source: str = Field(default="", description="where its facts come from")


class Remedy(Noun):
    """A change of strategy that makes a job fit, and what it costs in time."""

    change: dict[str, Any] = Field(description="strategy fields and their new values")
    device_gib: float = Field(description="memory with the change [GiB]")
    fits_probability: Share = Field(description="with the change")
    tokens_per_s: float = Field(description="with the change, all GPUs")
    slower: float = Field(description="time of a step over the time without the change; below 1 is faster")


class Estimate(Noun):
    """What will happen to a job on a rig. tokens_per_s is the total over all GPUs, tokens as users count them."""

    memory: Memory = Field(description="of one GPU")
    host_ram_gib: float = Field(description="RAM of one node at load and while training [GiB]")
    tokens_per_s: float = Field(description="all GPUs, without padding")
    tokens_per_s_low: float = Field(description="lower end of the 80 % range")
    tokens_per_s_high: float = Field(description="upper end of the 80 % range")
    processed_tokens_per_s: float | None = Field(default=None, description="all GPUs, padding included")
    step_s: float = Field(description="seconds of one optimizer step")
    time_lines: dict[str, float] = Field(description="named parts of one optimizer step [s]; they sum to step_s")
    fits_probability: Share = Field(description="that a step runs without running out of memory")
    why_not: str | None = Field(default=None, description="what it needs and has, where it probably does not fit")
    assumed: dict[str, Any] = Field(default_factory=dict, description="settings that the stack's profile filled in")
    trace: list[Note] = Field(default_factory=list[Note], description="law and source of every line")
    remedies: list[Remedy] = Field(
        default_factory=list[Remedy], description="changes that make it fit, least costly first"
    )


class Offer(Noun):
    """A rig with a price. usd_per_hour is for the whole rig."""

    provider: str = Field(description="who sells it")
    instance: str = Field(default="", description="name of the machine")
    region: str = Field(default="", description="where it stands")
    term: Term = Field(default="on-demand", description="how it is bought")
    usd_per_hour: Annotated[float, Field(gt=0)] = Field(description="of the whole rig [USD/h]")
    rig: Rig = Field(description="what is sold")
    billing_increment_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="time is billed in whole steps of this [s]; None: not known"
    )
    minimum_s: Annotated[float, Field(ge=0)] = Field(default=0, description="least time billed [s]")
    billed_while_stopped: str = Field(default="", description="what the meter counts while the machine is stopped")
    storage_usd_per_gb_month: float | None = Field(
        default=None, description="disk [USD per GB and month]; None: not known"
    )
    stopped_storage_usd_per_gb_month: float | None = Field(
        default=None, description="disk while the machine is stopped [USD per GB and month]; None: not known"
    )
    egress_usd_per_gb: float | None = Field(default=None, description="traffic out [USD/GB]; None: not known")
    ingress_usd_per_gb: float | None = Field(default=None, description="traffic in [USD/GB]; None: not known")
    deposit_usd: float | None = Field(default=None, description="smallest payment or balance that starts a machine")
    boot_s: float | None = Field(default=None, description="from order to shell, as the provider states [s]")
    boot_billed: bool = Field(default=True, description="whether the meter runs while the machine boots")
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
    observed_at: date = Field(description="day on which the price was seen")
    source: str = Field(description="where it was seen")


class CostLine(Noun):
    """One line of the bill: usd = quantity x the unit's price."""

    name: str = Field(description="what is paid for")
    quantity: float = Field(description="how much of it")
    unit: str = Field(description="h, GB-month or GB")
    usd: float = Field(description="[USD]")


class Plan(Noun):
    """An Estimate bought through an Offer."""

    offer: Offer = Field(description="what is bought")
    strategy: Strategy = Field(description="how the job is laid out on it")
    estimate: Estimate = Field(description="what will happen")
    hours: float = Field(description="of training [h]")
    hours_low: float = Field(description="lower end of the range [h]")
    hours_high: float = Field(description="upper end of the range [h]")
    usd: float = Field(description="of the whole run: the sum of cost_lines [USD]")
    usd_low: float = Field(description="lower end of the range [USD]")
    usd_high: float = Field(description="upper end of the range [USD]")
    usd_per_million_tokens: float = Field(description="usd over the tokens of the run [USD]")
    cost_lines: list[CostLine] = Field(description="the bill")
    used_gpus: int | None = Field(default=None, description="GPUs of the offer that the job uses; None: all of them")
    startup_s: dict[str, float] = Field(
        default_factory=dict[str, float], description="named parts of the wait before the first step [s]"
    )
    break_even_mtbi_hours: float | None = Field(
        default=None,
        description="interrupted oftener than this [h], the same machine on demand is cheaper; None: unknown",
    )
    risk: str = Field(default="", description="what may go wrong with this offer, in words")
    risk_probability: Share | None = Field(
        default=None, description="that the run does not end as planned: it does not fit, or is interrupted"
    )
    usd_with_waiting: float | None = Field(
        default=None, description="usd and the hours at what an hour of waiting is worth [USD]"
    )


class Recipe(Noun):
    """A plan written out: complete files for a training stack and the exact command that runs them."""

    target: str = Field(description="the stack that it is for")
    files: dict[str, str] = Field(description="name: text")
    command: str = Field(description="what starts the run, in the folder of the files")
    install: str = Field(description="the stack, pinned")
    assumptions: list[str] = Field(description="what it fixes that the plan does not ask for, or leaves to a script")


class Run(Noun):
    """An Estimate that happened: the columns of the evidence schema (runs/SCHEMA.md), measured."""

    line: int = Field(description="line of the file")
    source: str = Field(description="the publication")
    path: str = Field(default="", description="file that the row was read from")
    columns: dict[str, str] = Field(description="cells as written")


class Calibration(Noun):
    """One fitted parameter of the laws."""

    parameter: str = Field(description="its name")
    value: float = Field(description="fitted")
    standard_error: float = Field(description="of the value")
    n: int = Field(description="runs that it was fitted on")
    fitted_on: str = Field(description="hash of the runs it was fitted on")
