"""Which model families trace: one model of each family of models.csv, at reduced depth, by method.

usage: nice python bench/trace_families.py [--out bench/data/trace_families.csv]
"""

import argparse
import csv
import logging
import warnings
from dataclasses import replace
from pathlib import Path

from perrun.facts import models
from perrun.terms import Model
from perrun.trace import Recipe, versions
from perrun.trace.depth import layers_of, truncated
from perrun.trace.step import Request, Tracer

METHODS = ("full", "lora", "qlora")
KEPT = ("none", "full")
KERNELS = ("flash2", "sdpa", "eager")


def representatives() -> list[Model]:
    """The smallest known model of each model_type."""
    found: dict[str, Model] = {}
    for row in models.rows():
        model = models.get(row["id"])
        best = found.get(model.model_type)
        if best is None or model.total_params < best.total_params:
            found[model.model_type] = model
    return [found[name] for name in sorted(found)]


def _step(model: Model, method: str, attention: str, layers: int) -> None:
    config = truncated(model.config | {"model_type": model.model_type}, layers)
    tracer = Tracer(replace(Request(config), method=method, attention=attention), Recipe())
    for kept in KEPT:
        tracer.checkpointing(kept)
        tracer.micro_step(1, 512)
        tracer.clear()


def outcome(model: Model, method: str) -> str:
    """The first attention kernel with which it traces, or why none does."""
    whole = layers_of(model.config)
    reasons: list[str] = []
    for attention in KERNELS:
        for layers in dict.fromkeys((min(8, whole), whole)):  # some families' first layers cannot stand alone
            try:
                _step(model, method, attention, layers)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {str(error).splitlines()[0][:160]}")
            else:
                return attention
    return reasons[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="bench/data/trace_families.csv")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with Path(arguments.out).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model_type", "model", *METHODS, *versions()))
        for model in representatives():
            row = [outcome(model, method) for method in METHODS]
            print(f"{model.model_type:22} {model.id:45} {'; '.join(dict.fromkeys(row))}", flush=True)
            writer.writerow((model.model_type, model.id, *row, *versions().values()))


if __name__ == "__main__":
    main()
