"""Writes what the documents quote of perrun itself: the glossary, README's first output, the tables of docs/seeds.md.

usage: python scripts/docs.py
Run it whenever facts, fits or terms change; tests/test_docs.py fails until it was.
"""

import contextlib
import csv
import io
import os
import re
import shlex
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from perrun import terms, verbs
from perrun.surfaces import cli
from perrun.units import GB, GIB

ROOT = Path(__file__).parents[1]
FIRST = "perrun plan meta-llama/Llama-3.1-8B --method qlora --examples 5000 --tokens 1500 --epochs 3"
SHOWN = 8  # rows of README's table
RIG = terms.Rig(gpu="B200-180GB")  # large enough for each of the seed's five jobs
STACKS = ("trl", "axolotl", "unsloth")
# What pages 000 and 001 call measured, and the job each row means: (row, model, method, objective, GPUs, precision)
PAIRS = (
    ("QLoRA, Llama 3.1 8B", "meta-llama/Llama-3.1-8B", "qlora", "sft", 1, "bf16", 1.8),
    ("QLoRA, Llama 3.1 70B", "meta-llama/Llama-3.1-70B", "qlora", "sft", 1, "bf16", 2.0),
    ("full, 8B, BF16, 8 GPUs", "meta-llama/Llama-3.1-8B", "full", "sft", 8, "bf16", 2.2),
    ("full, 8B, FP8, 8 GPUs", "meta-llama/Llama-3.1-8B", "full", "sft", 8, "fp8", 3.0),
    ("DPO, 8B", "meta-llama/Llama-3.1-8B", "lora", "dpo", 1, "bf16", 2.4),
)


def main() -> None:
    for path, text in documents().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


def documents() -> dict[str, str]:
    """Every document that holds something generated, with it as it should be."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    seeds = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
    seeds = between(seeds, "memory", memory_of_the_seed())
    guide = (ROOT / "docs" / "guide-deciding.md").read_text(encoding="utf-8")
    return {
        "README.md": between(readme, "plan", first_output()),
        "docs/seeds.md": between(seeds, "speed", speed_of_the_seeds()),
        "docs/guide-deciding.md": with_outputs(guide),
        "docs/glossary.md": glossary(),
    }


def between(text: str, name: str, body: str) -> str:
    """`text` with what stands between the two markers of `name` replaced."""
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    head, found, rest = text.partition(start)
    old, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no {start} ... {end} in the document")
    del old
    return f"{head}{start}\n{body}{end}{tail}"


@contextlib.contextmanager
def _without_a_book() -> Iterator[None]:
    """Only the shipped snapshot of prices counts."""
    before = os.environ.get("PERRUN_DATA_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERRUN_DATA_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["PERRUN_DATA_DIR"]
            if before is not None:
                os.environ["PERRUN_DATA_DIR"] = before


def printed(command: str) -> list[str]:
    """The lines that a command prints with the shipped prices, without what changes by the day."""
    out = io.StringIO()
    with _without_a_book(), contextlib.redirect_stdout(out):
        code = cli.run(shlex.split(command)[1:])
    if code:
        raise RuntimeError(f"{command}: exit code {code}")
    return re.sub(r"\d+ (to \d+ )?days old", "... days old", out.getvalue()).splitlines()  # counted from today


RUN = re.compile(r"<!-- run -->\n```bash\n(?P<command>.*?)\n```\n.*?<!-- end -->", re.DOTALL)


def with_outputs(text: str) -> str:
    """A document with what its commands print below each of them."""

    def run(found: re.Match[str]) -> str:
        command = found["command"]
        shown = "\n".join(line.rstrip() for line in printed(command.replace("\\\n", " ")))
        return f"<!-- run -->\n```bash\n{command}\n```\n\n```text\n{shown}\n```\n<!-- end -->"

    return RUN.sub(run, text)


def first_output() -> str:
    """What README's command prints, its table cut after a few rows."""
    lines = printed(FIRST)
    end = next(i for i, line in enumerate(lines) if line.startswith("Cheapest"))
    cut = [*lines[: 2 + SHOWN], f"... ({end - 2 - SHOWN} more)", "", *lines[end:]]
    return "```text\n" + "\n".join(cut) + "\n```\n"


def memory_of_the_seed() -> str:
    """The five memory figures of page 002 beside the closed form on three stacks."""
    head = ["| job | page 002 | weights as stored |", "|---|---:|---:|"]
    head[0] += "".join(f" {name}: allocated | device |" for name in STACKS)
    head[1] += "---:|---:|" * len(STACKS)
    with (ROOT / "tests" / "data" / "golden" / "calculator_memory.csv").open() as handle:
        return "\n".join([*head, *map(_memory_row, csv.DictReader(handle))]) + "\n"


def _memory_row(row: dict[str, str]) -> str:
    found = [_memory_on(row, stack) for stack in STACKS]
    cells = [f"{row['model'].split('/')[1]}, {row['method']}", row["memory_gb"], _gb(found[0].lines["base weights"])]
    for memory in found:
        cells += [_gb(memory.allocated_gib), _gb(memory.device_gib)]
    return "| " + " | ".join(cells) + " |"


def _memory_on(row: dict[str, str], stack: str) -> terms.Memory:
    """The page's setting on one stack; each stack checkpoints in its own way."""
    length = int(row["seq_len"])
    job = {"method": row["method"], "lora_rank": int(row["lora_rank"]), "seq_len": length, "global_batch": 1}
    laid_out = {"framework": stack, "micro_batch": int(row["micro_batch"])}
    if stack != "unsloth":
        laid_out["checkpointing"] = row["checkpointing"]
    return verbs.estimate(row["model"], RIG, job, laid_out).memory


def _gb(gib: float) -> str:
    return f"{gib * GIB / GB:.1f}"


def speed_of_the_seeds() -> str:
    """How much faster an H100 SXM is than an A100 SXM4 by each page and by perrun, with its 80 % range."""
    lines = ["| job | pages 000, 001 | page 002's rule | perrun | 80 % range |", "|---|---:|---:|---:|---:|"]
    for name, model, method, objective, n_gpus, precision, said in PAIRS:
        job = {"method": method, "objective": objective}
        found = verbs.compare(
            model, "A100-SXM4-80GB", "H100-SXM-80GB", job, n_gpus=n_gpus, price_a=0.468, price_b=1.680
        )
        chosen = found.fp8 if precision == "fp8" else found
        assert chosen is not None
        lines.append(
            f"| {name} | {said:.1f} | {989 / 312:.2f} | {chosen.speedup:.2f} "
            f"| {chosen.speedup_low:.2f} to {chosen.speedup_high:.2f} |"
        )
    return "\n".join(lines) + "\n"


NOUNS = (
    "Job Strategy Rig Estimate Memory Note Remedy Offer CostLine Plan Rejected Varied Experiments PlanAnswer FitCell "
    "FitAnswer Side Flip Comparison PricedJob Decision JobsAnswer MethodCost MethodsAnswer Recipe Model GPU Source Run "
    "Calibration"
)


def glossary() -> str:
    """Every noun with its fields, their types and meanings, from perrun.terms."""
    parts = ["# Glossary", "", "Made from `perrun.terms` by `python scripts/docs.py`: the names of every answer."]
    for name in NOUNS.split():
        noun = getattr(terms, name)
        parts += ["", f"## {name}", "", " ".join((noun.__doc__ or "").split()), ""]
        parts += ["| field | type | default | meaning |", "|---|---|---|---|"]
        parts += [_field(key, info) for key, info in noun.model_fields.items()]
    return "\n".join(parts) + "\n"


def _field(name: str, info: Any) -> str:
    default = "" if info.is_required() else "empty" if info.default_factory else f"`{info.default}`"
    meaning = (info.description or "").replace("|", "\\|")
    return f"| `{name}` | {_type(info.annotation)} | {default} | {meaning} |"


def _type(kind: Any) -> str:
    """A type in words: the choices of a literal, the kind of a list, 'or unknown' for None."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is type(None):
        return "unknown"
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_type, inner))
    if origin is Annotated:
        return _type(inner[0])
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"{_type(inner[1])} by name"
    words = {int: "whole number", float: "number", str: "text", bool: "yes or no", Any: "anything"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))


if __name__ == "__main__":
    main()
