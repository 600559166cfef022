"""perrun validate: predicted against measured, for runs and for pairs; exit code 1 when a budget is not kept."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli import show
from perrun.surfaces.cli.options import takes

app = typer.Typer(add_completion=False, rich_markup_mode=None)
HEAD = ("", "n", "median", "90th pct", "bias", "in range")
LINES = 8  # line numbers that one reason shows


@app.command()
@takes("output")
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV of measured runs (runs/SCHEMA.md); default: runs/")
    ] = None,
    pairs: Annotated[Path | None, typer.Option("--pairs", help="CSV of speed-ups of one recipe on two cards")] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="fit without each publication before it is asked")
    ] = False,
    write_docs: Annotated[
        bool, typer.Option("--write-docs", help="write docs/accuracy.md, its plot, README's table")
    ] = False,
    output: Any = None,
) -> None:
    """Predict measured runs from their settings alone and score the predictions."""
    from perrun.validation import publish

    if write_docs:
        for path in publish.publish(Path.cwd()):
            print(path)
        return
    paths = list(files or ([] if pairs else publish.shipped_runs(Path.cwd())))
    answer = _runs(paths, leave_out) if paths else None
    paired = _pairs(pairs) if pairs else None
    if output.get("json"):
        show.as_json(_merged(answer, paired))
    elif output.get("csv"):
        _show_rows([*(answer.rows if answer else []), *(paired.rows if paired else [])])
    else:
        if answer is not None:
            _show_runs(answer, output)
        if paired is not None:
            _show_pairs(paired, output)
    broken = [one for found in (answer and answer.summary, paired) if found for one in found.broken]
    if broken:
        for one in broken:
            print(f"over budget: {one.figure} {one.group} {one.statistic} is {_limits(one)}", file=sys.stderr)
        raise SystemExit(1)


def _runs(paths: list[Path], leave_out: bool) -> Any:
    from perrun.validation import publish, validate

    return publish.validate_left_out(paths) if leave_out else validate(paths)


def _pairs(path: Path) -> Any:
    from perrun.validation import pairs

    return pairs(path)


def _merged(answer: Any, paired: Any) -> dict[str, Any]:
    """One object: rows and summary of the runs, or of the pairs, or of the runs with the pairs beside them."""
    if answer is None:
        return dict(paired.model_dump())
    found = dict(answer.model_dump())
    return found | {"pairs": paired.model_dump()} if paired is not None else found


def _show_rows(rows: list[dict[str, Any]]) -> None:
    """Every row as CSV: where it stands, each predicted and measured figure, and why it is refused."""
    table: list[dict[str, Any]] = []
    for row in rows:
        flat = {name: row.get(name, "") for name in ("file", "line", "source", "skipped")}
        for side in ("predicted", "measured"):
            flat |= {f"{side}_{name}": value for name, value in row[side].items()}
        table.append(flat)
    columns = list(dict.fromkeys(name for flat in table for name in flat))
    cells = [["" if flat.get(name) is None else flat[name] for name in columns] for flat in table]
    show.rows(columns, cells, {"csv": True})


def _limits(one: Any) -> str:
    limits = [
        f"{word} {limit:.1%}" for word, limit in (("at least", one.low), ("at most", one.high)) if limit is not None
    ]
    return f"{one.value:.1%}, promised {' and '.join(limits)}"


def _cells(name: str, one: Any) -> list[str]:
    return [name, str(one.n), f"{one.median:.1%}", f"{one.p90:.1%}", f"{one.bias:+.1%}", f"{one.coverage:.0%}"]


def _table(title: str, groups: dict[str, Any], output: dict[str, Any]) -> None:
    found = [_cells(name, one) for name, one in groups.items() if one is not None]
    if found:
        show.rows((title, *HEAD[1:]), found, output)


def _show_runs(answer: Any, output: dict[str, Any]) -> None:
    found = answer.summary
    print(f"{found.rows} rows, {found.predicted} predicted, {found.skipped} refused")
    _table("memory by kind", {**found.memory.by_kind, "all of known kind": found.memory.all}, output)
    _table("memory by source", found.memory.by_source, output)
    _table("memory by method", found.memory.by_method, output)
    _table("memory by GPU", found.memory.by_gpu, output)
    _table("speed by source", {**found.speed.by_source, "all": found.speed.all}, output)
    _table("speed by method", found.speed.by_method, output)
    _table("speed by GPU", found.speed.by_gpu, output)
    _table("speed by framework", found.speed.by_framework, output)
    _show_outcomes(found.outcomes)
    _show_refused(answer.rows, output)


def _show_outcomes(found: Any) -> None:
    if found.oom:
        print(f"out of memory: {found.oom} runs, {found.oom_warned:.0%} predicted not to fit or to perhaps not fit")
    if found.ok:
        print(f"went through: {found.ok} runs, {found.ok_allowed:.0%} predicted to fit or to perhaps fit")
    if found.may is not None:
        print(f"'may fit' was said of {found.may:.0%}")


def _show_refused(rows: list[dict[str, Any]], output: dict[str, Any]) -> None:
    lines: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["skipped"]:
            lines.setdefault((Path(row.get("file", "")).name, row["skipped"]), []).append(row["line"])
    found = [
        [
            name,
            ", ".join(map(str, numbers[:LINES])) + (" ..." if len(numbers) > LINES else ""),
            str(len(numbers)),
            reason,
        ]
        for (name, reason), numbers in lines.items()
    ]
    if found:
        show.rows(("file", "lines", "rows", "refused because"), found, output)


def _show_pairs(paired: Any, output: dict[str, Any]) -> None:
    print(f"{len(paired.rows)} pairs, {paired.skipped} refused")
    _table("pairs", paired.scores, output)
    _table("cards", paired.by_gpus, output)
    if paired.break_even:
        found = paired.break_even
        print(
            f"break-even at the prices of the seed pages: the right advice in {found.right:.1%} of {found.n} verdicts"
        )
    _show_refused(paired.rows, output)
