"""Recipes: a plan written out for a training stack, and a stack's configuration read into a job and a strategy.

One module a target, each with `emit(order) -> Recipe` and `read(text, beside, where) -> Read`; what a target can
express is a row of targets.csv, how it spells our words are rows of words.csv, what its parser knows is in fields/.
"""

from importlib import import_module
from typing import Any

from perrun.recipes import tables
from perrun.recipes.order import DATA, Order, check, refusals
from perrun.recipes.reading import Read as Read
from perrun.terms import Job, Model, Recipe, Rig, Strategy


def names() -> tuple[str, ...]:
    """Every target."""
    return tuple(tables.targets())


def module(target: str) -> Any:
    """The module of a target."""
    return import_module(f"perrun.recipes.{target.replace('-', '_')}")


def reasons(target: str, order: Order) -> list[str]:
    """Everything of a plan that a target cannot express; empty where it can."""
    row = tables.target(target)
    own = getattr(module(row.name), "refusals", None)
    return refusals(order, row) + (own(order) if own is not None else [])


def able(order: Order) -> list[str]:
    """Targets that can express a plan, those that start a whole run first."""
    return [name for name in names() if not reasons(name, order)]


def emit(
    target: str, job: Job, strategy: Strategy, rig: Rig, model: Model, *, data: str = DATA, out: str = "out",
    steps: int | None = None,
) -> Recipe:  # fmt: skip
    """Complete files, the exact command, the pinned install line, and what was assumed.

    data: a file of rows or a data set of the hub; out: the folder of the result; steps: an end before the epochs.
    Raises UnknownName for a target, and InvalidInput when it cannot express the plan, with the targets that can.
    """
    row = tables.target(target)
    order = Order(job, strategy, rig, model, data, out, steps)
    check(reasons(row.name, order), row, lambda: able(order))
    recipe: Recipe = module(row.name).emit(order)
    if strategy.framework != row.framework:
        own = f"{row.name} runs as {row.framework}: plan with --framework {row.framework}"
        told = f"the plan was made for {strategy.framework}; {own}"
        recipe = recipe.model_copy(update={"assumptions": [told, *recipe.assumptions]})
    return recipe
