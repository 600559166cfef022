"""perrun prices refresh, import, check, publish: what goes into the book."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import takes
from perrun.surfaces.cli.prices.shared import MACHINE, app, machine, plain


@app.command()
@takes("output")
def refresh(
    output: dict[str, Any],
    source: Annotated[list[str] | None, typer.Option("--source", metavar="NAME", help="only these sources")] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="that one source may take")
    ] = 30.0,
    due: Annotated[bool, typer.Option("--due", help="only what was not stored within a week")] = False,
) -> None:
    """Ask all sources at once; one that fails keeps its previous prices and stops no other."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from perrun.errors import Unavailable
    from perrun.prices import desk

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    outcomes: list[Any] = []
    with desk.opened() as book:
        names = desk.wanted(book, source, due)
        if names:
            console = Console(stderr=True)
            with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
                task = bar.add_task("asking", total=len(names))
                outcomes = desk.refreshed(book, names, timeout, told=lambda _: bar.advance(task))
    _show(outcomes, output)
    failed = any(outcome.error for outcome in outcomes)
    if failed and not any(outcome.added for outcome in outcomes):
        if output["json"]:  # the errors stand in the answer
            raise typer.Exit(2)
        raise Unavailable("no source answered", hint="the prices of the book stay as they were")


def _show(outcomes: list[Any], output: dict[str, Any]) -> None:
    from perrun.surfaces.cli import show

    if output["json"]:
        show.as_json([plain(outcome) for outcome in outcomes])
        return
    names = ("source", "new", "changed", "same", "gone", "held back", "s", "to know")
    if show.rows(names, [_row(outcome) for outcome in outcomes], output):
        held = sum(outcome.added.quarantined for outcome in outcomes if outcome.added)
        if held:
            print(f"{held} prices are held back: perrun prices check says why")
        elif not outcomes:
            print("nothing is due: every source was stored within a week")


def _row(outcome: Any) -> tuple[Any, ...]:
    if outcome.skipped:
        return (outcome.source, *[""] * 6, f"skipped: {outcome.skipped}")
    seconds = f"{outcome.seconds:.1f}"
    if outcome.added is None:
        return (outcome.source, *[""] * 5, seconds, f"failed, its previous prices stay: {outcome.error}")
    notes: list[str] = []
    if outcome.missing:
        notes.append(f"did not come: {', '.join(outcome.missing)}")
    if outcome.unknown_cards:
        shown = ", ".join(outcome.unknown_cards[:8]) + (", ..." if len(outcome.unknown_cards) > 8 else "")
        notes.append(f"cards that the facts do not hold: {shown}")
    added = outcome.added
    counts = (added.new, added.changed, added.same, added.gone, added.quarantined)
    return (outcome.source, *counts, seconds, "; ".join(notes))


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="CSV or YAML with your prices; docs/prices.md has the columns")],
    partial: Annotated[bool, typer.Option("--partial", help="take the good rows and list the others")] = False,
    name: Annotated[str | None, typer.Option("--name", help="name of the source, default: the file's")] = None,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
) -> None:
    """Put your own prices into the book: negotiated rates, owned cards, on-premises. All of a file or nothing."""
    import sys

    from perrun.prices import desk
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        done = desk.import_file(
            book, file, partial=partial, name=name, told=lambda problem: print(f"{file} {problem}", file=sys.stderr)
        )
    if json:
        held = [quote._asdict() | {"reason": reason} for quote, reason in done.held]
        left_out = [plain(problem) for problem in done.problems]
        show.as_json({"source": done.source, **plain(done.added), "left_out": left_out, "held": held})
        return
    added = done.added
    left = f", {len(done.problems)} left out" if done.problems else ""
    print(f"{done.source}: {added.new} new, {added.changed} changed, {added.same} same, {added.gone} gone{left}")
    for quote, reason in done.held:
        print(f"  held back: {quote.provider} {quote.n_gpus}x {quote.gpu} {quote.term}: {reason}")
    if done.held:
        print("  perrun prices check --accept N publishes one that is right")


@app.command()
@takes("output")
def check(
    output: dict[str, Any],
    accept: Annotated[
        list[int] | None, typer.Option("--accept", metavar="N", help="publish this price after all")
    ] = None,
    drop: Annotated[list[int] | None, typer.Option("--drop", metavar="N", help="drop this price for good")] = None,
) -> None:
    """Prices that were held back and why, sources that fail, prices over a week old. Exit code 1 if any waits."""
    from perrun.prices import desk
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        if accept or drop:
            desk.decide(book, accept or (), drop or ())
        found = desk.check(book)
    if output["json"]:
        held = [{"id": one.id, "source": one.source, **one.quote._asdict(), "reason": one.reason} for one in found.held]
        doubtful = [quote._asdict() | {"reason": reason} for quote, reason in found.doubtful]
        failing = [plain(state) for state in found.failing]
        show.as_json({**plain(found), "held": held, "doubtful": doubtful, "failing": failing})
    else:
        rows = [(one.id, one.source, *machine(one.quote), one.reason) for one in found.held]
        rows += [("stored", quote.source, *machine(quote), reason) for quote, reason in found.doubtful]
        rows += [("fails", state.name, *[""] * len(MACHINE), state.error) for state in found.failing]
        if show.rows(("waits", "source", *MACHINE, "why"), rows, output):
            print(
                f"{found.offers} offers, {found.old} of them over a week old; {len(found.held)} held back, "
                f"{len(found.doubtful)} stored but doubtful, {len(found.failing)} sources failing"
            )
    if found.held or found.doubtful or found.failing:
        raise typer.Exit(1)


@app.command()
def publish(json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False) -> None:
    """Write the book's current offers where perrun plan reads them: after another machine refreshed a shared book."""
    from perrun.prices import desk
    from perrun.prices import publish as published
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        path = published.publish(book)
    show.as_json({"published": str(path)}) if json else print(path)
