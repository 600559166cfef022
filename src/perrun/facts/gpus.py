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
    is_cuda = row["vendor"] == "NVIDIA"  # AMD's gfx names and Gaudi's are no CUDA capability
    return GPU.model_construct(  # the tests validate every row; building the validator would cost start-up
        None,
        **{key: row[key] for key in _TEXTS},
        **{key: tables.number(row[key]) for key in _NUMBERS},
        compute_capability=tables.number(row["compute_capability"]) if is_cuda else None,
        supports_bf16=row["supports_bf16"] == "yes",
        sm_count=int(row["sm_count"]) if row["sm_count"] else None,
    )


@cache
def _by_id() -> dict[str, GPU]:
    return {row["id"]: _gpu(row) for row in tables.read("gpus")}


def all_gpus() -> tuple[GPU, ...]:
    """Every row of gpus.csv."""
    return tuple(_by_id().values())


# Words that say nothing, words that a name may leave out, and words glued to others.
_VENDOR_WORDS = frozenset(
    ("nvidia", "amd", "intel", "geforce", "tesla", "instinct", "radeon", "graphics", "gpu", "generation", "edition")
)
_OPTIONAL_WORDS = frozenset(("rtx", "gtx", "rx", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "pcie", "nvl", "oam"))
_GLUED = re.compile(r"(?<=\d)(ti|super|ada|sxm\d?|pcie|nvl|d|laptop|maxq)$|^(rtx|gtx|rx)(?=[a-z0-9])")
_MEMORY = re.compile(r"\d+gb")


def _words(name: str) -> frozenset[str]:
    """The words of a name that tell cards apart: 'RTX4090 24 GB' gives rtx, 4090, 24gb."""
    text = re.sub(r"(\d+)\s*(?:gb|gib|g)\b", r"\1gb ", name.lower().replace("max-q", "maxq"))
    words = [word for piece in re.findall(r"[a-z0-9]+", text) for word in _GLUED.sub(r" \1\2 ", piece).split()]
    return frozenset(words) - _VENDOR_WORDS


def _compact(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _aliases() -> dict[str, list[str]]:
    """Every written name in compact form, and the ids that bear it."""
    found: dict[str, list[str]] = {}
    for row in tables.read("gpus"):
        for name in dict.fromkeys(map(_compact, (row["id"], row["marketing_name"], *row["aliases"].split(";")))):
            found.setdefault(name, []).append(row["id"])
    return found


@cache
def _vocabulary() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """For each id, the words that may stand in its name, and those without which the name means another card."""
    vocabulary: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for row in tables.read("gpus"):
        needed = _words(row["id"]) | (_words(row["marketing_name"]) & {"custom"})
        memory = {row["memory_gb"], f"{row['memory_gb']}gb", row["memory_type"].lower()}
        form = _words(row["form_factor"])
        if _words(row["id"]) & _OPTIONAL_WORDS:  # an NVL card is a PCIe card, but nobody who writes PCIe means it
            form = form - {"pcie"}
        form = form | {"sxm"} if any(word.startswith("sxm") for word in form) else form
        needed = frozenset(word for word in needed if word not in _OPTIONAL_WORDS and not _MEMORY.fullmatch(word))
        vocabulary[row["id"]] = (_words(row["id"]) | _words(row["marketing_name"]) | memory | form, needed)
    return vocabulary


def _ids(name: str) -> list[str]:
    compact = _compact(name)
    exact = _aliases().get(compact, [])
    if compact in map(_compact, exact) or (compact.startswith(("nvidia", "amd")) and exact):
        return [id for id in exact if _compact(id) == compact] or exact  # an id, or the name that a driver reports
    words = _words(name)
    missing = {id: len(needed - words) for id, (allowed, needed) in _vocabulary().items() if words <= allowed}
    best = [id for id, count in missing.items() if count == min(missing.values())] if words else []
    return best or exact


def candidates(name: str) -> tuple[GPU, ...]:
    """All cards that a name may mean, in table order; empty when there is none.

    A price that names no form factor ('A100-80GB') is a price for any of its candidates.
    """
    return tuple(_by_id()[id] for id in _ids(name))


def meant(name: str) -> tuple[str, ...]:
    """Ids of every card that a name may mean, for a filter, which need not choose. Raises UnknownName."""
    return tuple(gpu.id for gpu in candidates(name)) or (get(name).id,)


def describe(gpu: GPU) -> str:
    """One line of what tells a card from its siblings."""
    bandwidth = f"{gpu.bandwidth_gb_s:g} GB/s" if gpu.bandwidth_gb_s else "bandwidth unknown"
    rates = (("BF16", gpu.bf16_dense_tflops), ("FP16", gpu.fp16_dense_tflops))
    tflops = next((f"{rate:g} {name} TFLOPS" for name, rate in rates if rate), "TFLOPS unknown")
    return f"{gpu.id}: {gpu.memory_gb:g} GB, {gpu.form_factor or 'form factor unknown'}, {bandwidth}, {tflops}"


def _nearest(name: str) -> list[str]:
    hits = difflib.get_close_matches(_compact(name), _aliases(), n=5, cutoff=0.4)
    return list(dict.fromkeys(id for hit in hits for id in _aliases()[hit]))[:3]


def get(name: str) -> GPU:
    """The one card that a name means, in any case and with any spaces or dashes.

    Raises AmbiguousName listing the candidates with their differences, UnknownName suggesting the nearest.
    """
    if name in _by_id():
        return _by_id()[name]
    found = candidates(name)
    if len(found) == 1:
        return found[0]
    if found:
        lines = [describe(gpu) for gpu in found]
        raise AmbiguousName(
            f"GPU {name!r} fits {len(found)} cards",
            candidates=lines,
            expected=f"one of {'; '.join(lines)}",
            hint=f"write for example {found[0].id}",
        )
    near = _nearest(name)
    raise UnknownName(
        f"GPU {name!r} is not known",
        expected="a card of `perrun gpus`, in any spelling",
        hint=f"did you mean {', '.join(near)}?" if near else "perrun gpus lists them",
    )
