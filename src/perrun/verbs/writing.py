"""From a plan to the files of a stack, and from the files of a stack to what they cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput
from perrun.terms import Recipe, Rig
from perrun.verbs.asking import check_rig, checked, job, layout, offers

if TYPE_CHECKING:
    from perrun.recipes.diff import Change


def recipe(
    model: str,
    rig: Rig,
    target: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    data: str | None = None,
    steps: int | None = None,
    min_fit: float = 0.9,
) -> Recipe:
    """The files and the command that train a job on a rig with a target's stack, at its fastest strategy that fits."""
    from perrun import recipes
    from perrun.recipes import making

    check_rig(rig)
    values = dict(given or {})
    if values.get("objective", "sft") not in ("sft", "pretrain"):
        values.setdefault("packing", False)  # pairs and prompts are never packed
    asked, found = job(model, values)
    laid_out = making.strategy(target, asked, found, rig, checked(strategy), min_fit)
    return recipes.emit(target, asked, laid_out, rig, found, data=data or recipes.DATA, steps=steps)


def diff(
    old: list[Path],
    new: list[Path],
    gpu: str,
    given: dict[str, Any] | None = None,
    *,
    n_gpus: int | None = None,
    n_nodes: int | None = None,
    price: float | None = None,
    prices: str | Path | None = None,
) -> "Change":
    """What a change of a configuration does to memory, hours and dollars on cards of one kind.

    given: fields of the job that no configuration holds (examples, tokens_per_example) or leaves out. n_gpus, n_nodes:
    of both; default: as each says, else one. Raises what reading raises, naming the key.
    """
    from perrun.facts import gpus
    from perrun.recipes import diff as changes
    from perrun.recipes import folder

    card = gpus.get(gpu).id
    versions: list[changes.Laid] = []
    notes: list[str] = []
    for files in (old, new):
        read = folder.together(files)
        rig = Rig(gpu=card, n_gpus=n_gpus or read.n_gpus or 1, n_nodes=n_nodes or read.n_nodes or 1)
        fields, laid_out, said = folder.settings(read, n_gpus)
        values = {**fields, **(given or {})}
        if "model" not in values:
            raise InvalidInput(f"the {read.target} configuration names no model", hint="--model NAME")
        asked, found = job(values.pop("model"), values)
        versions.append((asked, layout(asked, rig, laid_out), rig, found, [*read.unread, *read.unknown]))
        notes += [note for note in said if note not in notes]
    return changes.change(versions[0], versions[1], offers(prices), price, notes)
