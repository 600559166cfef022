"""What `perrun plan --vary` and `--alternatives` print: one plan a row, with a chart of dollars and hours."""

from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput
from perrun.facts import gpus
from perrun.surfaces.cli import forest, show
from perrun.surfaces.cli.options import JOB, STRATEGY, WISH, Flag

COLUMNS = ("rig", "provider", "term", "GiB", "tokens/s", "hours", "$ per run (range)", "$/M tokens")
NOT_VARIED = ("front", "sort")


def axes(
    texts: list[str], option: str = "--vary", flags: tuple[Flag, ...] = (*JOB, *STRATEGY, *WISH)
) -> dict[str, list[Any]]:
    """'seq_len=1024,2048' and 'rank=8,16' as values by field. Raises InvalidInput for what is no flag or no value."""
    known = {name: flag for flag in flags if flag.field not in NOT_VARIED for name in _names(flag)}
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        flag = known.get(name.strip().replace("-", "_"))
        if flag is None:
            raise InvalidInput(f"{option} {text}: {name!r} is no setting", expected=", ".join(sorted(known)))
        if not values.strip(","):
            raise InvalidInput(f"{option} {text}", expected=f"{name}=VALUE,VALUE,...")
        found[flag.field] = [_value(flag, value.strip()) for value in values.split(",") if value.strip()]
    return found


def _names(flag: Flag) -> set[str]:
    spoken = {part.lstrip("-").replace("-", "_") for spelling in flag.spelling for part in spelling.split("/")}
    return {flag.field, *(name for name in spoken if not name.startswith("no_"))}


def _value(flag: Flag, text: str) -> Any:
    """A value in the type of its flag; lists of names hold the one."""
    if flag.kind == list[str]:
        return gpus.meant(text) if flag.field == "gpus" else (text,)
    if flag.kind is bool:
        if text.lower() not in ("yes", "no", "true", "false"):
            raise InvalidInput(f"{flag.field} is {text!r}", expected="yes or no")
        return text.lower() in ("yes", "true")
    try:
        return flag.kind(text)
    except ValueError:
        raise InvalidInput(f"{flag.field} is {text!r}", expected=f"a number ({flag.help})") from None


def label(change: dict[str, Any]) -> str:
    """'seq_len 1024, method qlora'."""
    return ", ".join(f"{name} {_said(value)}" for name, value in change.items())


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:g}" if isinstance(value, float) else str(value)


def cells(one: Any) -> list[str]:
    """One row: the best plan after a change, or why there is none."""
    if one.plan is None:
        return [label(one.change), one.why_not, *[""] * (len(COLUMNS) - 1)]
    from perrun.planner import rig_said

    found = one.plan
    return [
        label(one.change),
        rig_said(found),
        found.offer.provider,
        found.offer.term,
        f"{found.estimate.memory.device_gib:.1f}",
        f"{found.estimate.tokens_per_s:,.0f}",
        f"{found.hours:.2f}",
        f"{found.usd:,.2f} ({found.usd_low:,.2f}-{found.usd_high:,.2f})",
        f"{found.usd_per_million_tokens:.3f}",
    ]


def tell(found: list[Any], output: dict[str, Any], svg: Path | None, title: str) -> None:
    """The table, the chart in letters below it, and the chart as a file where one is named."""
    have = [one for one in found if one.plan is not None]
    dollars = [forest.Row(label(one.change), one.plan.usd, one.plan.usd_low, one.plan.usd_high) for one in have]
    hours = [forest.Row(label(one.change), one.plan.hours, one.plan.hours_low, one.plan.hours_high) for one in have]
    if svg is not None and have:
        svg.write_text(forest.svg((("$ per run", dollars), ("hours", hours)), title), encoding="utf-8")
    if output["json"]:
        show.as_json([one.model_dump(mode="json") for one in found])
        return
    if show.rows(("change", *COLUMNS), [cells(one) for one in found], output, title) and have:
        for rows, unit in ((dollars, "$"), (hours, "h")):
            print()
            print("\n".join(forest.text(rows, unit)))


def tell_alternatives(found: list[Any]) -> None:
    """Other jobs, each with what it does to the training."""
    print("\nOther jobs that you may accept:")
    table = [[*cells(one), one.means] for one in found]
    show.rows(("change", *COLUMNS, "what it does"), table, {})
