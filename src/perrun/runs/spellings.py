"""Foreign spellings of settings, translated once, here: what people write in a column to what terms.py calls it."""

import re
from dataclasses import dataclass
from typing import get_args

from perrun.errors import InvalidInput
from perrun.runs import notes as say
from perrun.terms import AttentionKernel, Checkpointing, Method, Objective, Offload, Optimizer, Precision, Sharding

UNKNOWN = ("", "unknown", "n/a", "none stated", "?")

_ALIASES: dict[str, dict[str, str]] = {
    "method": {"full-finetune": "full", "full-ft": "full", "sft": "full", "lora-8bit": "lora-int8"},
    "precision": {"bf16": "bf16-true", "fp16": "fp16-mixed", "amp": "bf16-mixed", "float32": "fp32", "tf32": "fp32"},
    "optimizer": {
        "adam": "adamw",
        "adamw-torch": "adamw",
        "adamw-torch-fused": "adamw",
        "adamw-hf": "adamw",
        "adamw8bit": "adamw-8bit",
        "adamw-bnb-8bit": "adamw-8bit",
        "paged-adamw": "paged-adamw-32bit",
        "adamw4bit": "adamw-4bit",
        "lion-8bit": "lion-8bit",
    },
    "checkpointing": {"yes": "full", "true": "full", "no": "none", "false": "none"},
    "attention": {
        "fa2": "flash2",
        "flash-attention-2": "flash2",
        "flash": "flash2",
        "fa3": "flash3",
        "xformers": "sdpa",
        "flex": "sdpa",
        "flex-attention": "sdpa",
        "math": "eager",
    },
    "offload": {"no": "none", "cpu": "both", "yes": "both"},
    "objective": {},
}
_ALLOWED = {
    "method": get_args(Method),
    "precision": get_args(Precision),
    "optimizer": get_args(Optimizer),
    "checkpointing": get_args(Checkpointing),
    "attention": get_args(AttentionKernel),
    "offload": get_args(Offload),
    "objective": get_args(Objective),
}


def choice(column: str, cell: str) -> str | None:
    """The allowed value that a cell means; None when it says that it is not known. Raises InvalidInput."""
    text = re.sub(r"\s*\(.*\)\s*$", "", cell.strip().lower()).replace("_", "-").replace(" ", "-")
    if text in UNKNOWN:
        return None
    value = _ALIASES[column].get(text, text)
    if value not in _ALLOWED[column]:
        raise InvalidInput(f"{column} {cell!r} is none that perrun knows", expected=", ".join(_ALLOWED[column]))
    return value


def flag(column: str, cell: str) -> bool | None:
    """yes or no; None when not known. Raises InvalidInput."""
    text = cell.strip().lower()
    if text in UNKNOWN:
        return None
    if text in ("yes", "true", "1", "on"):
        return True
    if text in ("no", "false", "0", "off"):
        return False
    raise InvalidInput(f"{column} {cell!r} is neither yes nor no")


def number(column: str, cell: str, *, whole: bool = False) -> float | None:
    """A positive figure; None when the cell is empty. Raises InvalidInput for anything else."""
    if cell.strip().lower() in UNKNOWN:
        return None
    try:
        value = float(cell.replace(",", "").replace("_", ""))
    except ValueError:
        raise InvalidInput(f"{column} {cell!r} is not a number") from None
    if not 0 < value < float("inf") or (whole and value != int(value)):
        raise InvalidInput(f"{column} {cell!r} is not possible", expected="a positive" + whole * " whole" + " number")
    return value


# What a framework without a profile of its own trains through.
_DRIVES = {"xtuner": "deepspeed", "nemo-launcher": "nemo", "composer": "llm-foundry", "megatron-deepspeed": "megatron"}


def frameworks(cell: str) -> list[str]:
    """Names that a framework's cell is made of: 'SFTTrainer (trl) + deepspeed' names trl and deepspeed."""
    parts = [part.strip().lower() for part in re.split(r"[+/(),;]|\bwith\b|\bon\b", cell)]
    found = [_DRIVES.get(part.replace(" ", "-"), part) for part in parts if part]
    return [*found, *(word for part in parts for word in part.split())]


_TARGET_SETS = {
    "all-linear": "all-linear",
    "all": "all-linear",
    "attn": "attn",
    "self_attn": "attn",
    "attention": "attn",
    "attn-qv": "attn-qv",
    "q,v": "attn-qv",
    "q_proj,v_proj": "attn-qv",
    "attn-qkv": "attn-qkv",
    "mlp": "gate_proj,up_proj,down_proj",
    "language-model attention+mlp": "all-linear",
}
_SHORT = {"q", "k", "v", "o", "up", "down", "gate"}


def lora_targets(cell: str) -> str | None:
    """Targets as 'attn-qv', 'attn', 'all-linear' or module names joined by ','; None when not stated."""
    text = re.sub(r"\s*\(.*?\)", "", cell.strip())
    plus_experts = text.endswith("+ expert tensors")
    text = text.removesuffix("+ expert tensors").strip()
    if text.lower() in UNKNOWN:
        return None
    if text.lower() in _TARGET_SETS:
        return _TARGET_SETS[text.lower()]
    names = [name for name in re.split(r"[,+;\s]+", text) if name]
    names = [f"{name}_proj" if name in _SHORT else name for name in names]
    joined = ",".join(names)
    if plus_experts and joined.lower() in _TARGET_SETS:
        return _TARGET_SETS[joined.lower()]
    return _TARGET_SETS.get(joined, joined)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a run is laid out over its GPUs; sharding None: not stated."""

    sharding: str | None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1


_BASES = {name: name for name in get_args(Sharding)} | {
    "deepspeedzero1": "zero1",
    "deepspeedzero2": "zero2",
    "deepspeedzero3": "zero3",
    "zerostage1": "zero1",
    "zerostage2": "zero2",
    "zerostage3": "zero3",
    "fullshard": "fsdp",
    "shardgradop": "zero2",
    "dp": "ddp",
    "single": "none",
}


# How MLPerf's Llama-2-70B LoRA recipes split a model-parallel degree into (tensor, context). Source:
# mlcommons/training_results_v4.0 and v5.0, llama2_70b_lora (config_DGXH100_1x8x4xtp4pp1cp1.sh,
# config_DGXH100_128x8x1xtp4pp1cp2.sh, config_DGXH200_1x8x2xtp1pp1cp2.sh).
_SPLITS = {2: (1, 2), 4: (4, 1), 8: (4, 2)}


def split_degree(parallel: int) -> tuple[int, int]:
    """(tensor, context) degrees of a model-parallel degree that is not said to be either."""
    return _SPLITS.get(parallel, (parallel, 1))


def layout(cell: str, notes: str) -> Layout:
    """'tp4-pp1-cp2', 'fsdp2-tp8-pp8', 'zero3', ... and what the notes add ('model-parallel degree 4', 'EP 8').

    Raises InvalidInput for a spelling that names no layout, and for layers split over GPUs by hand (device_map).
    """
    if "naive model parallel" in notes or "device_map" in cell:
        raise InvalidInput("layers are split over GPUs by device_map, a layout that perrun does not predict")
    degrees: dict[str, int] = {}
    base: str | None = None
    text = re.sub(r"[\s_]", "", cell.lower())
    text = re.sub(r"zero-?(stage)?-?(?=\d)", "zero", text)
    for part in () if text in UNKNOWN else text.split("-"):
        degree = re.fullmatch(r"(tp|pp|cp|ep|dp|sp)(\d+)", part)
        if degree and int(degree[2]) > 0:
            degrees[degree[1]] = int(degree[2])
        elif part in _BASES:
            base = _BASES[part]
        elif part != "hybrid":
            raise InvalidInput(f"sharding {cell!r} is none that perrun knows", expected=", ".join(get_args(Sharding)))
    if "hybrid" in text:
        parallel = say.number(r"model-parallel degree (\d+)", notes)
        if parallel is None and not degrees:
            raise InvalidInput(f"sharding {cell!r} does not say how the model is split over the GPUs")
        tensor, context = split_degree(int(parallel or 1))
        degrees = {"tp": tensor, "cp": context} | degrees
    experts = say.number(r"(?:\bEP |kernels ep)(\d+)", notes)
    sizes = {name: degrees.get(name, 1) for name in ("tp", "pp", "cp")}
    return Layout(base, **sizes, ep=degrees.get("ep", int(experts or 1)))


def gpu(cell: str) -> tuple[str, float | None]:
    """Name and power limit [W] of 'H100-SXM-96GB (500W)'; an empty name when not stated."""
    name, _, rest = cell.partition("(")
    watts = re.search(r"(\d+)\s*W", rest)
    return ("" if name.strip().lower() in UNKNOWN else name.strip()), float(watts[1]) if watts else None
