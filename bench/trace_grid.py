"""Trace the grid that the closed form is compared with, and keep its peaks as data.

usage: nice python bench/trace_grid.py [--models ID,ID] [--out bench/data/trace_grid.csv] [--variants]

Every architecture x {full, lora, qlora} x {checkpointing on, off} x {1x512, 1x4096, 4x2048} x {eager, flash2} x
{plain, fused loss}, at two reduced depths, each phase in bytes; the steps of each optimizer {foreach, fused, 8-bit}
beside them. With --variants: other recipes (autocast, k-bit preparation, kernels, DPO, ...) on a few architectures.
Rows that the file already holds are skipped, so that a stopped run goes on where it was.
"""

import argparse
import csv
import gc
import itertools
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perrun.facts import models
from perrun.trace import Recipe, versions
from perrun.trace.depth import truncated
from perrun.trace.step import Request, Tracer

ARCHITECTURES = (
    "mistralai/Mistral-7B-v0.1", "meta-llama/Llama-3.2-1B", "google/gemma-2-9b", "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-0.6B", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-3B", "google/gemma-3-1b-it", "microsoft/phi-4", "microsoft/Phi-4-mini-instruct",
    "deepseek-ai/DeepSeek-V2-Lite", "openai/gpt-oss-20b", "allenai/OLMo-2-1124-7B", "bigcode/starcoder2-7b",
    "openai-community/gpt2", "EleutherAI/gpt-j-6b", "HuggingFaceTB/SmolLM2-135M", "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "CohereLabs/aya-23-8B", "ibm-granite/granite-3.0-3b-a800m-base",
    "meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-8B", "ibm/PowerLM-3b", "microsoft/phi-2",
)  # fmt: skip
VARIED = ("mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-3B", "mistralai/Mixtral-8x7B-v0.1")
SHAPES = ((1, 512), (1, 4096), (4, 2048))
OPTIMIZERS = {"foreach": ("adamw", "foreach"), "fused": ("adamw", "fused"), "8bit": ("adamw-8bit", "")}
DEPTHS = (2, 4)
PHASES = ("load", "forward", "forward_end", "loss", "saved", "backward", "after_backward")
RECIPE = tuple(asdict(Recipe()))
SETTING = (
    "model", "method", "lora_rank", "lora_targets", "objective", "attention", "layers", "micro_batch", "seq_len",
    "checkpointing",
)  # fmt: skip
KEY = (*SETTING, *RECIPE)
COLUMNS = (
    *SETTING, "model_type", *(f"recipe_{name}" for name in RECIPE), *PHASES,
    *(f"{what}_{name}" for name in OPTIMIZERS for what in ("step_1", "step_2", "states")),
    "torch", "transformers", "peft", "bitsandbytes",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One row: what is traced."""

    request: Request
    layers: int
    micro_batch: int
    seq_len: int
    checkpointing: str
    recipe: Recipe

    def columns(self, model: str) -> dict[str, str]:
        asked = {name: getattr(self.request, name) for name in SETTING[1:6]}
        laid_out = {name: getattr(self, name) for name in SETTING[6:]}
        recipe = {f"recipe_{name}": value for name, value in asdict(self.recipe).items()}
        return {name: str(value) for name, value in {"model": model, **asked, **laid_out, **recipe}.items()}


def grid(request: Request) -> Iterator[Case]:
    """The issue's grid for one architecture; cases that one built model serves follow each other."""
    for method, attention, layers in itertools.product(("full", "lora", "qlora"), ("flash2", "eager"), DEPTHS):
        asked = replace(request, method=method, attention=attention)
        for (batch, length), kept, loss in itertools.product(SHAPES, ("none", "full"), ("plain", "fused")):
            yield Case(asked, layers, batch, length, kept, Recipe(loss=loss))


def variants(request: Request) -> Iterator[Case]:
    """Other recipes, each changing one thing, on flash attention."""
    flash = replace(request, attention="flash2")
    full, lora, qlora = (replace(flash, method=m) for m in ("full", "lora", "qlora"))
    autocast = Recipe(autocast=True, outputs_float32=True)
    cases = [
        *((asked, autocast) for asked in (full, lora, qlora)),
        *((asked, replace(autocast, weights="fp32")) for asked in (full, lora)),
        *((qlora, replace(autocast, kbit=kind)) for kind in ("peft", "norms")),
        *((asked, Recipe(weights="fp32")) for asked in (full, lora)),
        *((asked, Recipe(adapter_dtype="bf16")) for asked in (lora, qlora)),
        *((asked, Recipe(reentrant=True)) for asked in (full, lora, qlora)),
        *((asked, Recipe(kernels="liger", loss="fused")) for asked in (full, lora, qlora)),
        *((asked, Recipe(loss="tiled")) for asked in (full, lora)),
        *((asked, Recipe(loss="chunked")) for asked in (full, lora)),
        *((asked, Recipe(logits="inline")) for asked in (full, lora)),
        *((asked, Recipe(experts="modules")) for asked in (lora, qlora)),
        *((asked, Recipe(lora_dropout=0.05)) for asked in (lora, qlora)),
        *((replace(asked, objective="dpo"), Recipe()) for asked in (full, lora)),
        *((replace(lora, lora_targets=targets), Recipe()) for targets in ("attn", "attn-qv")),
        *((replace(flash, method=m), Recipe()) for m in ("dora", "qdora", "lora-int8")),
        (replace(lora, attention="sdpa"), Recipe()),
    ]
    for asked, recipe in cases:
        for layers, kept in itertools.product(DEPTHS, ("none", "full", "unsloth")):
            yield Case(asked, layers, 2, 2048, kept, recipe)


class Bench:
    """Traces cases, keeping the last built model and the optimizer's steps on it."""

    def __init__(self) -> None:
        self._built: tuple[Any, ...] = ()
        self._tracer: Tracer | None = None
        self._steps: dict[str, int] = {}

    def numbers(self, case: Case) -> dict[str, int]:
        recipe = replace(case.recipe, loss="plain")
        wanted = (case.request, case.layers, recipe)
        if wanted != self._built or self._tracer is None:
            self._tracer, self._steps = None, {}
            gc.collect()
            cut = truncated(case.request.config, case.layers)
            self._tracer, self._built = Tracer(replace(case.request, config=cut), case.recipe), wanted
        tracer = self._tracer
        tracer.recipe = case.recipe
        tracer.checkpointing(case.checkpointing)
        micro = tracer.micro_step(case.micro_batch, case.seq_len)
        if not self._steps:
            for name, (kind, how) in OPTIMIZERS.items():
                steps = tracer.optimizer_steps(kind, how)
                self._steps |= {f"step_1_{name}": steps.first, f"step_2_{name}": steps.later}
                self._steps[f"states_{name}"] = steps.states
        tracer.clear()
        return {**{name: getattr(micro, name) for name in PHASES}, **self._steps}


def _done(out: Path) -> set[tuple[str, ...]]:
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", newline="") as file:
            csv.DictWriter(file, COLUMNS).writeheader()
        return set()
    with out.open() as file:
        return {_key(row) for row in csv.DictReader(file)}


def _key(columns: dict[str, str]) -> tuple[str, ...]:
    return tuple(columns[name] for name in COLUMNS[: len(SETTING)]) + tuple(columns[f"recipe_{n}"] for n in RECIPE)


def trace_model(id: str, cases: Iterator[Case], done: set[tuple[str, ...]], out: Path, model_type: str) -> None:
    """Append the cases that are missing; a case that fails is printed and left out."""
    bench, started, rows = Bench(), time.time(), 0
    failed: set[str] = set()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        for case in cases:
            columns = case.columns(id)
            if _key(columns) in done:
                continue
            try:
                numbers = bench.numbers(case)
            except Exception as error:
                bench = Bench()
                reason = f"{case.request.method} {case.request.attention} {type(error).__name__}: {str(error)[:200]}"
                if reason not in failed:
                    print(f"{id}: {case.recipe}\n  {reason}", flush=True)
                failed.add(reason)
                continue
            writer.writerow({**columns, "model_type": model_type, **numbers, **versions()})
            file.flush()
            rows += 1
    print(f"{id}: {rows} rows in {time.time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--out", default="bench/data/trace_grid.csv")
    parser.add_argument("--variants", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    out = Path(arguments.out)
    done = _done(out)
    default = VARIED if arguments.variants else ARCHITECTURES
    for id in [name for name in arguments.models.split(",") if name] or default:
        model = models.get(id)
        request = Request(model.config | {"model_type": model.model_type})
        cases = variants(request) if arguments.variants else grid(request)
        trace_model(id, cases, done, out, model.model_type)


if __name__ == "__main__":
    main()
