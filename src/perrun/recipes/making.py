"""From a question to a recipe: a strategy that fits and that the target can express, or the one of a plan."""

from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perrun import recipes, search
from perrun.errors import InvalidInput, NothingFits, Unavailable
from perrun.facts import layouts
from perrun.recipes import tables
from perrun.recipes.order import Order
from perrun.terms import Job, Model, Plan, PlanAnswer, Rig, Strategy

SHARDING = ("ddp", "fsdp2", "zero1", "zero2", "zero3", "fsdp")
SEARCHED = ("checkpointing", "fused_ce", "sharding")


def strategy(target: str, job: Job, model: Model, rig: Rig, fixed: dict[str, Any], min_fit: float) -> Strategy:
    """The fastest strategy that fits on the rig and that the target can express.

    Raises InvalidInput when the target can express none, with the reasons; NothingFits with the nearest miss.
    """
    row = tables.target(target)
    fixed = {**fixed, "framework": fixed.get("framework") or row.framework}
    fixed = {**fixed, **_expressible(row, job, model, rig, fixed)}
    found, rejected = search.best(job, model, [rig], fixed, min_fit)
    if not found:
        raise InvalidInput(f"{rig} cannot run the job: {rejected[0].reason}", hint="another card or another precision")
    best = found[0]
    if best.strategy is not None:
        return best.strategy
    needs = f"needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}"
    raise NothingFits(
        f"{row.name} has no strategy for {job.method} of {job.model} that fits on {rig}: {needs}",
        hint="more GPUs, a larger card, --method qlora, or a shorter --seq-len",
    )


def _expressible(row: tables.Target, job: Job, model: Model, rig: Rig, fixed: dict[str, Any]) -> dict[str, Any]:
    """For each searched category the words with which at least one strategy can be expressed.

    Raises InvalidInput with the reasons where there is none.
    """
    offered = layouts.of(row.framework)
    kernels = [
        kernel for kernel in (fixed.get("attention"), *offered.attention, *sorted(row.can["attention"])) if kernel
    ]
    kernel = next((k for k in kernels if not row.states("attention") or k in row.can["attention"]), "sdpa")
    options = {
        "checkpointing": _given(fixed, "checkpointing", ("none", "full")),
        "fused_ce": _given(fixed, "fused_ce", (False, True)),
        "sharding": _given(fixed, "sharding", SHARDING if rig.n_gpus > 1 or row.name == "deepspeed" else ("none",)),
    }
    reasons: list[list[str]] = []
    kept: dict[str, list[Any]] = {name: [] for name in SEARCHED}
    for choice in product(*options.values()):
        words = dict(zip(SEARCHED, choice, strict=True))
        more = {name: fixed[name] for name in ("offload", "compile", "tp", "pp", "cp", "ep") if fixed.get(name)}
        probe = Strategy(**words, **more, attention=kernel, micro_batch=fixed.get("micro_batch") or 8)  # type: ignore[arg-type]
        why = recipes.reasons(row.name, Order(job, probe, rig, model))
        reasons.append(why)
        for name, word in words.items():
            if not why and word not in kept[name]:
                kept[name].append(word)
    if not kept["sharding"]:
        fewest = min(reasons, key=len)
        raise InvalidInput(f"{row.name} cannot express {', '.join(fewest)}", hint="another --target, or other settings")
    usual = [word for word in kept["sharding"] if word in offered.sharding] or kept["sharding"][:2]
    found = {name: tuple(words) for name, words in kept.items()} | {"sharding": tuple(usual)}
    return found if kernel == fixed.get("attention") or not row.states("attention") else {**found, "attention": kernel}


def _given(fixed: dict[str, Any], name: str, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    return (fixed[name],) if fixed.get(name) is not None else otherwise


def planned(path: str | Path, row: int) -> tuple[Job, Strategy, Rig, Plan]:
    """One row (from 1) of a plan as `perrun plan --json` writes it. Raises Unavailable, or InvalidInput for no plan."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise Unavailable(f"{path} cannot be read: {why}", expected="the output of perrun plan --json") from None
    try:
        answer = PlanAnswer.model_validate_json(text)
    except ValidationError as why:
        first = why.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidInput(
            f"{path} is no plan: {where}: {first['msg']}", expected="perrun plan --json > FILE"
        ) from None
    if not 1 <= row <= len(answer.plans):
        raise InvalidInput(f"{path} has no plan {row}", expected=f"1 to {len(answer.plans)}")
    plan = answer.plans[row - 1]
    rig = plan.offer.rig
    if plan.used_gpus is not None:
        rig = rig.model_copy(update={"n_gpus": plan.used_gpus})
    return answer.job, plan.strategy, rig, plan


def write(files: dict[str, str], folder: str | Path, *, replace: bool = False) -> list[Path]:
    """Writes files of a recipe; run.sh can be run. Raises InvalidInput rather than losing what stands there."""
    home = Path(folder)
    paths = [home / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        if path.exists() and not replace and path.read_text(encoding="utf-8", errors="replace") != text:
            raise InvalidInput(f"{path} is there and says something else", hint="another --out, or --force")
    home.mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, files.values(), strict=True):
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return paths
