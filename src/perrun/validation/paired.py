"""Pairs of one recipe on two cards (or in two precisions): predicted speed-up against the measured one.

A pair is a row of a table with model, method, precision_a/b, seq_len, micro_batch, n_gpus, gpu_a/b and
speedup_b_over_a, per GPU. Cells such as '64/32' hold the values of both sides.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput, PerrunError
from perrun.runs import Settings, Skipped, settings, spellings, table
from perrun.terms import Estimate, Run
from perrun.validation.rows import Estimator
from perrun.validation.scores import Point

REQUIRED = ("model", "method", "gpu_a", "gpu_b", "speedup_b_over_a")
# Ratio of two estimates with its low and high; what `compare` answers.
Speedup = Callable[[Settings, Settings], tuple[float, float, float]]

# Stack and layout of each publication's runs, as its own table of runs states them.
_STACKS = {
    "llm-foundry": {"framework": "llm-foundry", "sharding": "fsdp", "objective": "pretrain"},
    "megatron-bridge": {"framework": "megatron-bridge", "objective": "pretrain"},
    "nvidia-dgxc": {"framework": "nemo", "objective": "pretrain"},
    "mlperf-llama2-70b-lora": {"framework": "nemo", "lora_rank": "16", "lora_targets": "attn"},
    "fsdp_qlora": {
        "framework": "fsdp_qlora",
        "sharding": "fsdp",
        "lora_rank": "64",
        "lora_targets": "k,q,v,up,down,gate",
        "checkpointing": "full",
    },
    "torchao": {"framework": "torchtitan", "sharding": "fsdp2", "checkpointing": "selective", "compile": "yes"},
    "torchtitan": {"framework": "torchtitan", "sharding": "fsdp2", "compile": "yes"},
}
_NOT_ONE_RECIPE = re.compile(
    r"NOT IDENTICAL|LOW TRUST|best (?:config|parallelism) on each|OUTLIER|do not use as a GPU ratio|lower bound"
    r"|different code stacks|not confirmed|preview|memory lets"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of pairs with its two questions, or why it has none."""

    line: int
    columns: dict[str, str]
    a: Settings | Skipped
    b: Settings | Skipped
    measured: float | None

    @property
    def source(self) -> str:
        return self.columns.get("source", "")

    @property
    def comparable(self) -> bool:
        """Whether the notes let the two sides pass for one recipe."""
        return not _NOT_ONE_RECIPE.search(self.columns.get("notes", ""))


def _side(cell: str, side: int) -> str:
    """'64/32' holds both sides; any other cell holds for both."""
    parts = cell.split("/")
    return parts[side].strip() if len(parts) == 2 else cell


def _layout(notes: str, side: int) -> dict[str, str]:
    """Layout of one side as the notes give it: '(tp2-pp4-cp1 vs tp1-pp2-cp1, GBS 32 vs 16)', 'MP degree 4 -> 2'."""
    found: dict[str, str] = {}
    layouts = re.search(r"\((tp[\w-]+(?: fsdp)?) vs (tp[\w-]+(?: fsdp)?)", notes)
    if layouts:
        found["sharding"] = layouts[side + 1].replace(" ", "-")
    degrees = re.search(r"MP degree (\d+) -> (\d+)", notes)
    if degrees:
        found["sharding"] = "tp{}-cp{}".format(*spellings.split_degree(int(degrees[side + 1])))
    nodes = re.search(r"(\d+) [\w ]*nodes[^;]*? vs (\d+) [\w ]*nodes", notes)
    if nodes:
        found["n_nodes"] = nodes[side + 1]
    batches = re.search(r"GBS (\d+) (?:vs|->) (\d+)", notes)
    if batches:
        found["global_batch"] = batches[side + 1]
    same_batch = re.search(r"GBS (\d+)\b(?! (?:vs|->))", notes)
    if same_batch and not batches:
        found["global_batch"] = same_batch[1]
    return found


def _recipe(pair: dict[str, str], side: int) -> dict[str, str]:
    """What the publication's own table of runs says of this side, and its notes."""
    notes, source = pair.get("notes", ""), pair.get("source", "")
    name = next((name for name in _STACKS if source.startswith(name)), None)
    found = dict(_STACKS[name]) if name else {}
    found |= _layout(notes, side)
    if "ZeRO-3" in notes or (name == "mlperf-llama2-70b-lora" and pair.get("precision_a", "").startswith("bf16")):
        found |= {"framework": "deepspeed", "sharding": "zero3", "checkpointing": "full"}
    if "DDP" in notes:
        found["sharding"] = "ddp"
    if "CPU offload" in notes:
        found["offload"] = "params"
    checkpointed = re.search(r"AC (True|False) on both", notes)
    if checkpointed:
        found["checkpointing"] = "full" if checkpointed[1] == "True" else "none"
    card = pair[f"gpu_{'ab'[side]}"]
    if name == "fsdp_qlora" and card.startswith("RTX"):
        found["interconnect"] = "pcie"
        found["notes"] = "cards power-limited to 280 W" if card.startswith("RTX-3090") else ""
    return found


def _columns(pair: dict[str, str], side: int) -> dict[str, str]:
    letter = "ab"[side]
    own = {
        "model": f"{pair['model']} (llm-foundry config)" if pair["model"].startswith("mpt-") else pair["model"],
        "method": pair["method"],
        "precision": pair.get(f"precision_{letter}", ""),
        "gpu": pair[f"gpu_{letter}"],
        "seq_len": pair.get("seq_len", ""),
        "micro_batch": _side(pair.get("micro_batch", ""), side) or "1",  # the same on both sides, so it hardly matters
        "n_gpus": _side(pair.get("n_gpus", ""), side) or "1",
        "packing": "yes",
    }
    nodes = str(math.ceil(int(own["n_gpus"]) / 8)) if own["n_gpus"].isdigit() else ""
    # Cells of the table itself win over what the publication's recipe implies.
    stated = {key: _side(pair[key], side) for key in ("framework", "sharding", "lora_rank") if pair.get(key)}
    return {"n_nodes": nodes} | _recipe(pair, side) | own | stated


def _question(line: int, pair: dict[str, str], side: int) -> Settings | Skipped:
    return settings(Run(line=line, source=pair.get("source", ""), columns=_columns(pair, side)))


def read(path: str | Path) -> list[Pair]:
    """The pairs of a table. Raises InvalidInput for a file that is no such table."""
    found: list[Pair] = []
    for line, columns in table.rows(path, REQUIRED):
        try:
            measured = float(columns["speedup_b_over_a"])
        except ValueError:
            measured = None
        a, b = (_question(line, columns, side) for side in (0, 1))
        found.append(Pair(line=line, columns=columns, a=a, b=b, measured=measured))
    if not found:
        raise InvalidInput(f"{path}: holds no pair", expected="rows under " + ", ".join(REQUIRED))
    return found


def ratio(a: Settings, b: Settings, estimate: Estimator) -> tuple[float, float, float]:
    """Speed-up of b over a per GPU, with low and high.

    The two estimates err together (same model, same stack), so the range of the ratio is that of the worse side
    alone, not of both added up.
    """
    one, two = estimate(a), estimate(b)
    speedup = (two.tokens_per_s / b.rig.n_gpus) / (one.tokens_per_s / a.rig.n_gpus)
    widest = max(_width(one), _width(two))
    return speedup, speedup / widest, speedup * widest


def _width(estimate: Estimate) -> float:
    return math.sqrt(estimate.tokens_per_s_high / estimate.tokens_per_s_low)


def score_pair(pair: Pair, speedup: Speedup) -> tuple[dict[str, Any], Point | None]:
    """The row of the answer, and the point to score when both sides could be predicted."""
    reason = next((side.reason for side in (pair.a, pair.b) if isinstance(side, Skipped)), None)
    predicted: tuple[float, float, float] | None = None
    if isinstance(pair.a, Settings) and isinstance(pair.b, Settings):
        try:
            predicted = speedup(pair.a, pair.b)
        except PerrunError as why:
            reason = why.what
    if pair.measured is None:
        reason = reason or "speedup_b_over_a is not a number"
    value, low, high = predicted or (None, None, None)
    row = pair.columns | {
        "line": pair.line,
        "predicted": {"speedup": value, "speedup_low": low, "speedup_high": high},
        "measured": {"speedup": pair.measured},
        "comparable": pair.comparable,
        "skipped": reason,
    }
    if predicted is None or pair.measured is None or not isinstance(pair.a, Settings):
        return row, None
    return row, Point(
        source=pair.source,
        method=pair.a.setting.method,
        gpu=f"{pair.columns['gpu_a']} to {pair.columns['gpu_b']}",
        framework=pair.a.setting.framework,
        kind="comparable" if pair.comparable else "not one recipe",
        predicted=predicted[0],
        measured=pair.measured,
        low=predicted[1],
        high=predicted[2],
    )
