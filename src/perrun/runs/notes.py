"""What the notes of a measured row say, as fields: the stack's variant, real lengths, further figures, doubts.

The notes of the evidence are prose with fixed phrases and bracketed tags. Only those are read; a note that says
nothing leaves the field None, which means: as the stack's profile has it.
"""

import re
from dataclasses import dataclass

from perrun.units import GB, GIB, MIB


@dataclass(frozen=True, slots=True)
class Variant:
    """How a run departs from its stack's profile, as published. None: as the profile.

    kernels: eager, fused, liger, unsloth (elementwise work and what it saves); loss: plain, fast (one kernel, logits
    still stored), chunked, fused. base_quantization: nf4, nf4-dq (double quantised), gptq, awq, int8, fp8.
    kbit_prepared: norms, embeddings and head were turned to fp32. weights_dtype overrides what `precision` implies.
    eval_in_peak: the published peak covers an evaluation. recomputed_layers: of full recomputation.
    virtual_stages: interleaved pipeline stages per rank. node_gbit_s: network of one node [Gbit/s].
    """

    kernels: str | None = None
    fused_lora: bool | None = None
    loss: str | None = None
    autocast: bool | None = None
    kbit_prepared: bool | None = None
    reentrant: bool | None = None
    base_quantization: str | None = None
    weights_dtype: str | None = None
    optimizer_impl: str | None = None
    engine: str | None = None
    padding_free: bool = False
    activation_offload: bool = False
    experts: str | None = None
    experts_quantized: bool = False
    adapters_on_experts: bool = False
    eval_in_peak: bool = False
    recomputed_layers: int | None = None
    virtual_stages: int = 1
    power_limited: bool = False
    node_gbit_s: float | None = None


def tags(notes: str) -> frozenset[str]:
    """Bracketed tags: exact-seq, cap-seq, suspect, approx, eta, ..."""
    return frozenset(tag.split(":")[0].strip() for tag in re.findall(r"\[([a-z][^\]]*)\]", notes))


def number(pattern: str, notes: str) -> float | None:
    """The first figure that `pattern` catches; thousands separators dropped."""
    found = re.search(pattern, notes, re.IGNORECASE)
    return float(found[1].replace(",", "")) if found else None


def mean_length(notes: str) -> float | None:
    """Mean tokens of a sample as the row's tokens/s counts them, when stated."""
    return number(r"(?:about|average)\s+([\d,]+)\s+(?:tokens\s+)?per sample", notes)


def power_limit_w(notes: str) -> float | None:
    """Power limit of the cards [W], when stated."""
    return number(r"(?:limited to|capped at)\s+(\d+)\s*W\b", notes)


def nvidia_smi_gib(notes: str) -> float | None:
    """The device's memory that the notes give beside the row's own figure [GiB]."""
    mib = number(r"nvidia-smi\s+([\d.]+)\s*MiB", notes)
    return None if mib is None else mib * MIB / GIB


def training_reserved_gib(notes: str) -> float | None:
    """99th percentile of reserved memory over training steps alone [GiB] (the peak may belong to an evaluation)."""
    gb = number(r"training-time reserved p99\s+([\d.]+)\s*GB", notes)
    return None if gb is None else gb * GB / GIB


def allocated_gib(notes: str) -> float | None:
    """Peak allocated that the notes give beside a reserved figure [GiB]."""
    return number(r"peak allocated\s+([\d.]+)\s*GiB", notes)


def reaches_cap(notes: str) -> bool:
    """Whether the longest sample has seq_len tokens although most are shorter, so that memory belongs to seq_len."""
    said = (
        r"memory belongs to seq",
        r"only a cap: \d+ real",
        r"longest sample about",
        r"truncated at max_length",
        r"over-length samples are DELETED",
    )
    return bool(re.search("|".join(said), notes))


def doubts(notes: str) -> dict[str, str]:
    """'memory', 'speed' and 'fit', as far as the publication or whoever copied it distrusts the figure: why."""
    suspect = re.search(r"\[suspect\]([^\[;]*)", notes)
    if suspect:
        memory = re.search(r"\b(?:GB|GiB|memory|reserved)\b", suspect[1])
        speed = re.search(r"/s\b|samples|tokens", suspect[1])
        figures = ["memory", "fit"] * bool(memory or not speed) + ["speed"] * bool(speed or not memory)
        return dict.fromkeys(figures, "marked [suspect]")
    if re.search(r"\bOUTLIER\b", notes):
        return dict.fromkeys(("memory", "speed", "fit"), "flagged as an outlier")
    if re.search(r"not on the page|padding to the cap not stated|config may differ", notes):
        return dict.fromkeys(("memory", "speed", "fit"), "settings that the publication does not state")
    return {}


def _kernels(notes: str) -> dict[str, str | bool | None]:
    if "fused Triton CE/RMSNorm/RoPE kernels" in notes:
        return {
            "kernels": "fused",
            "loss": "fused" if re.search(r"config \S*liger", notes) else "fast",
            "fused_lora": "fused LoRA" in notes,
        }
    if "Liger layers" in notes:
        return {"kernels": "liger", "fused_lora": True if "fused LoRA kernels on" in notes else None}
    return {"loss": "chunked"} if "chunked cross entropy" in notes else {}


def _base(notes: str) -> str | None:
    """How the frozen base is stored, when the notes say."""
    for name, pattern in (
        ("gptq", r"\bGPTQ\b"),
        ("awq", r"\bawq\b"),
        ("aqlm", r"\baqlm\b"),
        ("nf4-dq", r"nf4-dq|double quantized"),
        ("nf4", r"bnb\.nf4|bnb NF4|int4 \(bnb\)"),
        ("fp8", r"base kept in FP8"),
    ):
        if re.search(pattern, notes, re.IGNORECASE):
            return name
    return None


def _experts(notes: str) -> dict[str, str | bool | None]:
    kind = "scattermoe" if "ScatterMoE" in notes else "loop" if "plain HF experts" in notes else None
    if "MoE kernels plugin" in notes:
        kind = "grouped"
    on_experts = re.search(r"experts are LoRA targets|experts \+ attention LoRA|expert tensors", notes)
    return {
        "experts": kind,
        "experts_quantized": bool(re.search(r"experts quantised|expert weights still quantised", notes)),
        "adapters_on_experts": bool(on_experts),
    }


def _autocast(notes: str, precision: str) -> bool | None:
    """One publication runs the same recipe with and without the flag and says which; silence elsewhere is silence."""
    if "autocast flag on bf16 weights" in notes:
        return True
    return False if notes.startswith("config ") and precision == "bf16-true" else None


def _node_gbit_s(notes: str, gpu: str) -> float | None:
    """'2x200GbE per A100 node / 2x400GbE per H100 node': the one that belongs to `gpu`."""
    for count, rate, card in re.findall(r"(\d+)x(\d+)\s?GbE per (\w+) node", notes):
        if gpu.startswith(card):
            return float(count) * float(rate)
    return None


def variant(notes: str, *, precision: str, gpu: str, framework: str, optimizer: str) -> Variant:
    """The variant of its stack that a row's notes and spellings tell of."""
    layers = number(r"recomputes (\d+) layers", notes)
    stages = number(r"\bVP (\d+)", notes)
    implementation = re.search(r"\((?:torch )?(fused|foreach|bitsandbytes|torchao)\)", optimizer)
    return Variant(
        **(_kernels(notes) | _experts(notes)),  # type: ignore[arg-type]
        autocast=_autocast(notes, precision),
        kbit_prepared=True if "prepare_model_for_kbit_training" in notes else None,
        reentrant=True if "re-entrant gradient checkpointing" in notes else None,
        base_quantization=_base(notes),
        weights_dtype="fp16" if "probably pure fp16 weights" in notes else None,
        optimizer_impl=implementation[1] if implementation else None,
        engine="deepspeed" if re.search("deepspeed", f"{framework} {notes}", re.IGNORECASE) else None,
        padding_free="padding-free" in notes,
        activation_offload=bool(re.search(r"activations offloaded|AND activation offload", notes)),
        eval_in_peak="covers the generation evaluation" in notes,
        recomputed_layers=int(layers) if layers else None,
        virtual_stages=int(stages) if stages else 1,
        power_limited="POWER LIMITED" in notes,
        node_gbit_s=_node_gbit_s(notes, gpu),
    )


def what_method(notes: str) -> str | None:
    """What the notes call a method that the schema has no name for."""
    for pattern in (
        r"PEFT type (\w+)",
        r"^experiment ([\w+.-]+)",
        r"(LLaMA-Adapter v\d|P-tuning v\d)",
        r"(LoRA plus [\w ]+)",
    ):
        found = re.search(pattern, notes)
        if found:
            return found[1]
    return None
