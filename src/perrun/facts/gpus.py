"""GPUs by the names that people and programs give them."""

import difflib
import re
from functools import cache

from perrun.errors import AmbiguousName, UnknownName
from perrun.facts import tables
from perrun.terms import GPU

_NUMBERS = (
    "memory_gb",
    "memory_gib_usable",
    "cuda_visible_gib",
    "bandwidth_gb_s",
    "fp32_tflops",
    "tf32_dense_tflops",
    "fp16_dense_tflops",
    "bf16_dense_tflops",
    "fp8_dense_tflops",
    "fp4_dense_tflops",
    "nvlink_gb_s",
    "tdp_w",
    "boost_mhz",
)
_TEXTS = ("id", "vendor", "marketing_name", "architecture", "form_factor", "pcie", "source", "notes")


def _gpu(row: dict[str, str]) -> GPU:
    numbers = {key: tables.number(row[key]) for key in _NUMBERS}
    if row["vendor"] == "NVIDIA":  # AMD's gfx names and Gaudi's are no CUDA capability
        numbers["compute_capability"] = tables.number(row["compute_capability"])
    return GPU(
        **{key: row[key] for key in _TEXTS},
        **numbers,  # pyright: ignore[reportArgumentType]
        supports_bf16=row["supports_bf16"] == "yes",
        sm_count=int(row["sm_count"]) if row["sm_count"] else None,
    )


@cache
def all_gpus() -> tuple[GPU, ...]:
    """Every row of gpus.csv."""
    return tuple(_gpu(row) for row in tables.read("gpus"))


_NOISE = {"nvidia", "amd", "intel", "geforce", "tesla", "instinct", "radeon", "graphics", "gpu", "generation", "the"}


def _words(name: str) -> frozenset[str]:
    """What tells one card's name from another's: lower-case words without vendor words; '80 GB' is '80gb'."""
    text = re.sub(r"(\d+)\s*(gb|gib|g)\b", r"\1gb", name.lower())
    return frozenset(re.findall(r"[a-z0-9]+", text)) - _NOISE


@cache
def _names() -> dict[str, dict[str, None]]:
    """Every written name in its compact form -> ids that bear it."""
    names: dict[str, dict[str, None]] = {}
    for row in tables.read("gpus"):
        for name in (row["id"], row["marketing_name"], *row["aliases"].split(";")):
            names.setdefault(_compact(name), {})[row["id"]] = None
    return names


def _compact(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def candidates(name: str) -> tuple[GPU, ...]:
    """All cards that a name may mean, best-known rows in table order; empty when none."""
    ids: set[str] = set(_names().get(_compact(name), ()))
    words = _words(name)
    if not ids and words:
        ids = {gpu.id for gpu in all_gpus() if words <= _words(gpu.id) | _words(gpu.marketing_name)}
    return tuple(gpu for gpu in all_gpus() if gpu.id in ids)


def describe(gpu: GPU) -> str:
    """One line of what tells a card from its siblings."""
    bandwidth = f"{gpu.bandwidth_gb_s:g} GB/s" if gpu.bandwidth_gb_s else "bandwidth unknown"
    tflops = f"{gpu.bf16_dense_tflops:g} BF16 TFLOPS" if gpu.bf16_dense_tflops else "no BF16 figure"
    return f"{gpu.id} ({gpu.memory_gb:g} GB, {gpu.form_factor or 'form factor unknown'}, {bandwidth}, {tflops})"


def get(name: str) -> GPU:
    """The one card that a name means.

    Raises AmbiguousName listing the candidates with their differences, UnknownName suggesting the nearest.
    """
    for gpu in all_gpus():
        if gpu.id == name:
            return gpu
    found = candidates(name)
    if len(found) == 1:
        return found[0]
    if found:
        lines = [describe(gpu) for gpu in found]
        raise AmbiguousName(
            f"GPU {name!r} fits {len(found)} cards", candidates=lines, expected="one of " + "; ".join(lines)
        )
    near = difflib.get_close_matches(name, [gpu.id for gpu in all_gpus()], n=3, cutoff=0.4)
    raise UnknownName(f"GPU {name!r} is not known", hint=f"did you mean {', '.join(near)}?" if near else "")
