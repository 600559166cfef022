"""Trace the single-GPU runs whose settings are complete, and print traced against measured peaks.

usage: python bench/trace_vs_measured.py [--runs runs/fms-acceleration-benchmarks.csv]

Rows of fms-acceleration-benchmarks on one GPU, packed, that ran transformers' own modelling code (configurations
`none`, `baseline-peft-bnb`, `accelerated-peft-bnb`; not the fused kernels, GPTQ, or padding-free ones).

Two families differ for a known reason. gpt_bigcode of transformers 4.48 goes on filling its key-value cache while it
checkpoints, which keeps the product of c_attn of every layer: 24 layers x tokens x 2304 x 2 bytes on santacoder, or
x 4 under autocast (1.69 and 3.38 GiB at 8x2048); the installed code does not. Mixtral's routing is data: the trace
balances it.
"""

import argparse
import csv
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path

from perrun.errors import PerrunError
from perrun.facts import models
from perrun.terms import Job, Rig, Strategy
from perrun.trace import Recipe, trace

GIB = 2**30
PLAIN = ("none", "baseline-peft-bnb", "accelerated-peft-bnb")


def recipe(row: dict[str, str], configuration: str) -> Recipe:
    """What fms-acceleration's benchmark does (scripts/benchmarks/scenarios.yaml, torch 2.4, transformers 4.4x).

    The baseline is trl's SFTTrainer: k-bit preparation, then embeddings and head back to bf16. The accelerated plugin
    leaves the base as loaded. transformers before 4.49 copies the logits without their last position.
    """
    mixed = row["precision"] == "bf16-mixed"
    return Recipe(
        autocast=mixed,
        outputs_float32=mixed,
        adapter_dtype="fp32",
        kbit="norms" if configuration == "baseline-peft-bnb" else "none",
        logits=_logits(row),
        reentrant=True,
        optimizer_impl="foreach",
        lora_dropout=0.1,
        experts="modules",
    )


def _logits(row: dict[str, str]) -> str:
    """How that transformers version's model made its loss; gpt_bigcode never upcast its logits."""
    if "bigcode" in row["model"]:
        return "inline"
    return "inline_float" if "transformers 4.45" in row["framework_version"] else "shifted"


def usable(path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Rows that are complete, each with the name of its configuration."""
    with path.open() as file:
        for row in csv.DictReader(file):
            configuration = row["notes"].split(";")[0].removeprefix("config ")
            complete = row["n_gpus"] == "1" and row["outcome"] == "ok" and row["packing"] == "yes"
            if complete and row["mem_kind"] == "allocated" and configuration in PLAIN:
                yield row, configuration


def traced(row: dict[str, str], configuration: str) -> tuple[float, str]:
    """GiB and the phase that sets the peak."""
    job = Job(
        model=row["model"],
        method=row["method"],  # type: ignore[arg-type]
        precision=row["precision"],  # type: ignore[arg-type]
        lora_targets="attn" if row["lora_targets"] else "all-linear",
        lora_rank=int(row["lora_rank"] or 16),
        seq_len=int(row["seq_len"]),
    )
    strategy = Strategy(
        micro_batch=int(row["micro_batch"]),
        grad_accum=int(row["grad_accum"] or 1),
        checkpointing=row["checkpointing"],  # type: ignore[arg-type]
        attention="flash2",
        framework="fms-acceleration",
    )
    peak = trace(
        models.get(row["model"]), job, strategy, Rig(gpu=row["gpu"]), recipe=recipe(row, configuration), depth="reduced"
    )
    return peak.peak / GIB, peak.phase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", default="runs/fms-acceleration-benchmarks.csv")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    errors: list[float] = []
    print(
        f"{'model':34} {'method':6} {'configuration':22} {'batch':>7} {'traced':>8} {'measured':>8} {'error':>7}  phase"
    )
    for row, configuration in usable(Path(arguments.runs)):
        name = f"{row['model'].split('/')[-1]:34} {row['method']:6} {configuration:22}"
        batch = f"{row['micro_batch']}x{row['seq_len']}"
        try:
            gib, phase = traced(row, configuration)
        except PerrunError as error:
            print(f"{name} {batch:>7} skipped: {error}")
            continue
        measured = float(row["peak_mem_gb"])
        errors.append(gib / measured - 1)
        print(f"{name} {batch:>7} {gib:8.3f} {measured:8.3f} {errors[-1]:+7.2%}  {phase}", flush=True)
    sizes = sorted(abs(error) for error in errors)
    ninth = sizes[int(0.9 * (len(sizes) - 1))]
    print(
        f"{len(sizes)} rows: median {statistics.median(sizes):.2%}, 90th percentile {ninth:.2%}, "
        f"worst {sizes[-1]:.2%}, bias {statistics.median(errors):+.2%}"
    )


if __name__ == "__main__":
    main()
