"""The tables of this folder: what each target can express, how it spells our words, what its packages are."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from perrun.errors import InvalidInput, UnknownName


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one CSV beside this file."""
    text = resources.files(__package__ or "").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


CHOICES = ("method", "objective", "precision", "optimizer", "checkpointing", "attention", "offload", "sharding")
ANY = "*"


@dataclass(frozen=True, slots=True)
class Target:
    """One row of targets.csv.

    framework: the stack whose laws describe its runs. file: the main file that it writes. can: words that it can
    express, by field ('*': it says nothing of the field, any will do). fused_ce: objectives whose loss can be fused, or
    'always'. degrees: model-parallel degrees that can be above 1.
    """

    name: str
    framework: str
    file: str
    can: dict[str, frozenset[str]]
    fused_ce: frozenset[str]
    compile: frozenset[str]
    degrees: frozenset[str]
    max_gpus: int | None

    def states(self, field: str) -> bool:
        """Whether its files say anything of a field."""
        return ANY not in (self.can[field] if field in self.can else getattr(self, field))


@cache
def targets() -> dict[str, Target]:
    return {
        row["target"]: Target(
            name=row["target"],
            framework=row["framework"],
            file=row["file"],
            can={field: frozenset(row[field].split()) for field in CHOICES},
            fused_ce=frozenset(row["fused_ce"].split()),
            compile=frozenset(row["compile"].split()),
            degrees=frozenset(row["degrees"].split()),
            max_gpus=int(row["max_gpus"]) if row["max_gpus"] else None,
        )
        for row in rows("targets")
    }


def target(name: str) -> Target:
    """A target by its name. Raises UnknownName."""
    from difflib import get_close_matches

    known = targets()
    spelled = name.strip().lower().replace("_", "-")
    spelled = {"llama-factory": "llamafactory", "nemo": "nemo-automodel", "hf": "trainer"}.get(spelled, spelled)
    if spelled not in known:
        near = get_close_matches(spelled, known, n=1)
        raise UnknownName(
            f"no target {name!r}",
            expected=", ".join(known),
            hint=f"did you mean {near[0]}?" if near else "perrun recipe MODEL --target trl",
        )
    return known[spelled]


@cache
def _words(dialect: str, field: str) -> tuple[tuple[str, str], ...]:
    found = [
        (row["ours"], row["theirs"]) for row in rows("words") if (row["dialect"], row["field"]) == (dialect, field)
    ]
    return tuple(found)


def theirs(dialect: str, field: str, ours: str) -> str:
    """How a stack spells one of our words: the first row of words.csv. Raises InvalidInput when it has no word."""
    for word, spelled in _words(dialect, field):
        if word == ours:
            return spelled
    raise InvalidInput(f"{dialect} has no word for {field} {ours}")


def ours(dialect: str, field: str, spelled: Any, key: str) -> str:
    """Our word for what stands at `key`. Raises InvalidInput that names the key."""
    for word, known in _words(dialect, field):
        if known == spelled:
            return word
    expected = ", ".join(known for _, known in _words(dialect, field))
    raise InvalidInput(f"{key} is {spelled!r}, a {field} that perrun has no law for", expected=expected)


def install(*names: str) -> str:
    """The pinned install line of some packages of packages.csv."""
    pins = {row["package"]: row["pin"] for row in rows("packages")}
    return "pip install " + " ".join(
        f'"{pins[name]}"' if ";" in pins[name] or "[" in pins[name] else pins[name] for name in names
    )
