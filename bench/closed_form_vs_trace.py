"""The closed form of memory against traced steps: the whole grid in bench/data/trace_grid.csv, at its traced depths.

usage: python bench/closed_form_vs_trace.py [--worst N]
Prints median and worst error by method, checkpointing, attention, loss and model; exits 1 past the budget
(2 % at the median, 6 % at worst).
"""

import argparse
import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from perrun import memory, setting
from perrun.facts import models, stacks
from perrun.memory.phases import CUBLAS_WORKSPACES
from perrun.shapes import Shape
from perrun.terms import Job, Rig, Strategy

GRID = Path(__file__).parent / "data" / "trace_grid.csv"
MEDIAN, WORST = 0.02, 0.06
# The grid's recipe: plain transformers 5 and peft, fp32 adapters, no autocast, no preparation, no dropout.
TRACED = replace(stacks.get("trl"), autocast=False, kbit_upcast="no", lora_dropout=0.0, kernels="eager", loss="plain")
OPTIMIZERS = {"foreach": ("adamw", "foreach"), "fused": ("adamw", "fused"), "8bit": ("adamw-8bit", "fused")}


def truncated(shape: Shape, depth: int) -> Shape:
    """The first `depth` layers of a model, without towers."""
    layers, left = [], depth
    for layer in shape.layers:
        count = min(layer.count, left)
        left -= count
        if count:
            layers.append(replace(layer, count=count))
    return replace(shape, layers=tuple(layers), tower_params=0)


def traced_peak(row: dict[str, str], kind: str) -> float:
    """Peak of a step from the second on [bytes]: forward and backward carry the states that the trace left out."""
    states = int(row[f"states_{kind}"])
    moving = max(int(row["forward"]), int(row["loss"]), int(row["backward"])) + states
    return float(max(moving, int(row[f"step_2_{kind}"])))


def closed_peak(row: dict[str, str], kind: str) -> float:
    optimizer, implementation = OPTIMIZERS[kind]
    job = Job(
        model=row["model"],
        method=row["method"],
        lora_rank=int(row["lora_rank"]),
        lora_targets=row["lora_targets"],
        seq_len=int(row["seq_len"]),
        optimizer=optimizer,
    )
    strategy = Strategy(
        micro_batch=int(row["micro_batch"]),
        checkpointing=row["checkpointing"],
        attention=row["attention"],
        fused_ce=row["recipe_loss"] == "fused",
    )
    asked = setting.of(job, strategy, Rig(gpu="any"))
    shape = truncated(models.get(row["model"]).shape, int(row["layers"]))
    # the grid counts storages of tensors, not cuBLAS workspaces
    return -CUBLAS_WORKSPACES + float(
        memory.peak(shape, asked, replace(TRACED, optimizer_impl=implementation)).allocated
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worst", type=int, default=10)
    worst = parser.parse_args().worst
    errors: dict[str, list[float]] = defaultdict(list)
    listed: list[tuple[float, str]] = []
    for row in csv.DictReader(GRID.open()):
        for kind in OPTIMIZERS:
            error = closed_peak(row, kind) / traced_peak(row, kind) - 1
            columns = ("model", "method", "checkpointing", "attention", "recipe_loss")
            for key in ("all", f"optimizer {kind}", *(f"{c} {row[c]}" for c in columns)):
                errors[key].append(error)
            name = " ".join(row[c] for c in (*columns, "layers", "micro_batch", "seq_len"))
            listed.append((abs(error), f"{error:+.3f} {name} {kind}"))
    for key, values in errors.items():
        array = np.abs(values)
        print(f"{key:45s} n={array.size:5d} median {np.median(array):.4f} worst {array.max():.3f}")
    for _, line in sorted(listed, reverse=True)[:worst]:
        print(line)
    every = np.abs(errors["all"])
    return int(np.median(every) > MEDIAN or every.max() > WORST)


if __name__ == "__main__":
    sys.exit(main())
