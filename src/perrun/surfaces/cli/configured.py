"""--config FILE: what a configuration of a training stack says, beneath what the flags say."""

import sys
from pathlib import Path
from typing import Any

# What a plan searches for each rig anew; the rest of a strategy stands as the configuration says.
SEARCHED = ("micro_batch", "sharding", "offload", "tp", "pp", "cp", "ep")


def filled(given: dict[str, Any], files: list[str]) -> dict[str, Any]:
    """The arguments of a command with what the files say. Tells on stderr what was read and what was not.

    Raises InvalidInput that names the key that cannot be read, or where no model is named at all.
    """
    if files:
        from perrun.recipes import folder

        read = folder.together([Path(file) for file in files])
        given = merged(given, read, *folder.settings(read, _count(given)))
    if given.get("model") is None and given.get("plan") is None:
        from perrun.errors import InvalidInput

        raise InvalidInput("no model is named", expected="MODEL, or --config FILE that names one")
    return given


def _count(given: dict[str, Any]) -> int | None:
    return given.get("wish", given).get("n_gpus")


def merged(
    given: dict[str, Any], read: Any, job: dict[str, Any], strategy: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Flags over what was read. A command that asks for one rig takes the GPUs of the configuration too."""
    found = dict(given)
    model = job.pop("model", None)
    found["model"] = given.get("model") or model
    found["job"] = {**job, **given["job"]}
    if "wish" in given:
        strategy = {name: value for name, value in strategy.items() if name not in SEARCHED}
    else:
        for name in ("n_gpus", "n_nodes"):
            found[name] = given.get(name) or getattr(read, name)
    found["strategy"] = {**strategy, **given["strategy"]}
    _tell(read, {**job, **strategy}, notes)
    return found


def _tell(read: Any, said: dict[str, Any], notes: list[str]) -> None:
    print(f"read ({read.target}): {', '.join(f'{name} {value}' for name, value in said.items())}", file=sys.stderr)
    if read.unread:
        print(f"not read: {', '.join(read.unread)}", file=sys.stderr)
    if read.unknown:
        print(f"{read.target} itself does not know: {', '.join(read.unknown)}", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
