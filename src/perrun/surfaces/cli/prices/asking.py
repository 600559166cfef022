"""perrun prices list, history, market, export, sources: what the book knows."""

from datetime import date
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import takes
from perrun.surfaces.cli.prices.shared import MACHINE, AsOf, app, chosen, day, machine, plain

SHOWN = 30


@app.command("list")
@takes("offers", "output")
def list_(
    offers: dict[str, Any],
    output: dict[str, Any],
    as_of: AsOf = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="rows shown, 0 for all")] = SHOWN,
) -> None:
    """Offers, cheapest per GPU-hour first, with the day on which each price was seen and by whom."""
    from perrun.prices import chart, desk, freshness
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        found = desk.find(book, chosen(offers), day(as_of))
    if output["json"]:
        ages = (freshness.age_days(quote.observed_at, day(as_of)) for quote in found)
        show.as_json([quote._asdict() | {"age_days": age} for quote, age in zip(found, ages, strict=True)])
        return
    cut = found[: limit or None]
    rows = [
        (
            f"{q.usd_per_gpu_hour:.3f}",
            f"{q.usd_per_hour:.3f}",
            *machine(q),
            q.observed_at,
            chart.short_source(q.source),
        )
        for q in cut
    ]
    if show.rows(("$/GPU-h", "$/h", *MACHINE, "seen", "source"), rows, output):
        more = f"{len(found)} offers" + (f", {len(cut)} shown (--limit 0 for all)" if len(cut) < len(found) else "")
        print("; ".join(filter(None, (more, freshness.said((q.observed_at for q in found), day(as_of))))))


@app.command()
@takes("offers", "output")
def history(
    offers: dict[str, Any],
    output: dict[str, Any],
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="from that day on, YYYY-MM-DD")] = None,
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="write the chart as a picture")] = None,
) -> None:
    """Every price that was seen, as a chart in the terminal, as SVG or as rows."""
    from pathlib import Path

    from perrun.prices import chart, desk
    from perrun.surfaces.cli import show

    asked = chosen(offers)
    with desk.opened() as book:
        found = desk.history(book, asked, day(since, "--since"))
    lines, more = chart.series_of(found)
    if output["json"]:
        show.as_json([quote._asdict() for quote in found])
    elif any(output.values()):
        names = ("seen", *MACHINE, "usd_per_hour", "usd_per_gpu_hour", "source")
        rows = [(q.observed_at, *machine(q), q.usd_per_hour, q.usd_per_gpu_hour, q.source) for q in found]
        show.rows(names, rows, output)
    else:
        print(chart.text(lines), end="")
        if more:
            print(f"  and {more} more offers: narrow with --provider, --instance, --term, --region")
    if svg is not None:
        title = ", ".join((*asked.gpu, *asked.provider, *asked.instance)) or "all"
        Path(svg).write_text(chart.svg(lines, f"$ per GPU-hour: {title}"), encoding="utf-8")


@app.command()
@takes("offers", "output")
def market(
    offers: dict[str, Any],
    output: dict[str, Any],
    as_of: AsOf = None,
    claim: Annotated[
        str | None,
        typer.Option("--claim", metavar="TEXT", help="test e.g. 'lowcostgpu: at least 30 % below the median'"),
    ] = None,
) -> None:
    """Minimum, quartiles and maximum per card and term in $ per GPU-hour, with n, dates and the week's change."""
    from perrun.prices import desk, freshness
    from perrun.surfaces.cli import show

    if claim is not None:
        _claim(claim, chosen(offers), day(as_of), output)
        return
    with desk.opened() as book:
        found = desk.markets(book, chosen(offers), day(as_of))
    if output["json"]:
        show.as_json([plain(one) | {"age_days": freshness.age_days(one.newest, day(as_of))} for one in found])
        return
    names = ("card", "term", "n", "providers", "min", "q1", "median", "q3", "max", "oldest", "newest", "week")
    rows = [
        (
            one.gpu,
            one.term,
            one.n,
            one.providers,
            *(f"{x:.3f}" for x in (one.minimum, one.lower_quartile, one.median, one.upper_quartile, one.maximum)),
            one.oldest,
            one.newest,
            "" if one.change is None else f"{one.change:+.1%}",
        )
        for one in found
    ]
    if show.rows(names, rows, output, title="$ per GPU-hour") and found:
        print(freshness.said((one.newest for one in found), day(as_of)))


def _claim(said: str, asked: Any, known_on: date | None, output: dict[str, Any]) -> None:
    """Exit code 1 when the claim is false for a card."""
    from perrun.prices import desk
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        tested = desk.claim(book, said, asked, known_on)
    holds = all(one.holds for one in tested)
    if output["json"]:
        show.as_json({"claim": said, "holds": holds, "cards": [plain(one) for one in tested]})
    else:
        names = ("card", "term", "claimant $/GPU-h", "market", "n", "below by", "claim", "margin")
        rows = [
            (
                one.gpu,
                one.term,
                f"{one.usd_per_gpu_hour:.3f}",
                f"{one.reference:.3f}",
                one.n,
                f"{one.below:.1%}",
                "true" if one.holds else "false",
                f"{100 * one.margin:+.1f} points",
            )
            for one in tested
        ]
        if show.rows(names, rows, output):
            true = sum(one.holds for one in tested)
            print(f"{said}: {'true' if holds else 'false'}, it holds for {true} of {len(tested)} cards and terms")
    if not holds:
        raise typer.Exit(1)


@app.command()
@takes("offers")
def export(
    offers: dict[str, Any],
    as_of: AsOf = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="default: standard output")] = None,
    json: Annotated[bool, typer.Option("--json", help="the same offers as JSON")] = False,
) -> None:
    """Offers as a CSV that `perrun prices import` and `perrun plan --prices` take."""
    from pathlib import Path

    from perrun.prices import desk, files
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        found = desk.find(book, chosen(offers), day(as_of))
    text = show.json_text([quote._asdict() for quote in found]) if json else files.as_csv(found)
    if to is None:
        print(text, end="")
    else:
        Path(to).write_text(text, encoding="utf-8")


@app.command()
@takes("output")
def sources(output: dict[str, Any]) -> None:
    """Where prices come from, whether a key is needed, and when each was last asked and last answered."""
    from perrun.prices import desk
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        rows = [_source(known, state) for known, state in desk.states(book)]
    names = ("source", "endpoint", "key", "unit", "asked", "stored", "error")
    if output["json"]:
        show.as_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show.rows(names, rows, output)


def _source(known: Any, state: Any) -> tuple[str, ...]:
    """One row: what a source is, and what the book knows of it."""
    from perrun.prices.sources.http import key_of

    key = "none"
    if known is not None and known.keys:
        said = "set" if key_of(known.keys) else ("missing" if known.needs_key else "not needed")
        key = f"{' or '.join(known.keys)}: {said}"
    return (
        (known or state).name,
        known.endpoint if known else "imported or shipped",
        key,
        known.unit if known else "",
        _moment(state and state.tried_at),
        _moment(state and state.stored_at),
        state.error if state else "",
    )


def _moment(when: Any) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else "never"
