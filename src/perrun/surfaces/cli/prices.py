"""perrun prices: the price book. Refresh it from its sources, ask it, and test claims against the market."""

from datetime import date
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()
SHOWN = 30

Gpu = Annotated[list[str] | None, typer.Option("--gpu", help="only these cards; a name that fits several means all")]
Provider = Annotated[list[str] | None, typer.Option("--provider", help="only these providers")]
Terms = Annotated[list[str] | None, typer.Option("--term", help="on-demand, interruptible, prepaid-block, ...")]
Region = Annotated[list[str] | None, typer.Option("--region", help="only these regions")]
Instance = Annotated[list[str] | None, typer.Option("--instance", help="only these machines")]
Gpus = Annotated[int | None, typer.Option("--n-gpus", min=1, help="only machines with so many GPUs")]
AsOf = Annotated[str | None, typer.Option("--as-of", help="as known on that day, YYYY-MM-DD")]


@app.callback(help=__doc__)
def prices() -> None:
    """The group."""


def _filter(**given: Any) -> Any:
    from perrun.prices.desk import Filter

    n_gpus = given.pop("n_gpus", None)
    return Filter(**{name: tuple(values or ()) for name, values in given.items()}, n_gpus=n_gpus)


def _day(text: str | None, flag: str = "--as-of") -> date | None:
    from perrun.errors import InvalidInput

    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{flag} {text!r} is no date", expected="YYYY-MM-DD") from None


@app.command("list")
@takes("output")
def list_(
    output: dict[str, Any],
    gpu: Gpu = None,
    provider: Provider = None,
    term: Terms = None,
    region: Region = None,
    instance: Instance = None,
    n_gpus: Gpus = None,
    as_of: AsOf = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="rows shown, 0 for all")] = SHOWN,
) -> None:
    """Offers, cheapest per GPU-hour first, with the day on which each price was seen and by whom."""
    from perrun.prices import desk, freshness
    from perrun.surfaces.cli import show

    chosen = _filter(gpu=gpu, provider=provider, term=term, region=region, instance=instance, n_gpus=n_gpus)
    with desk.opened() as book:
        found = desk.find(book, chosen, _day(as_of))
    if output["json"]:
        show.as_json([quote._asdict() for quote in found])
        return
    cut = found[: limit or None]
    names = ("$/GPU-h", "$/h", "rig", "provider", "instance", "region", "term", "seen", "source")
    rows = [
        (
            f"{q.usd_per_gpu_hour:.3f}",
            f"{q.usd_per_hour:.3f}",
            f"{q.n_gpus}x {q.gpu}",
            q.provider,
            q.instance,
            q.region,
            q.term,
            q.observed_at,
            q.source.removeprefix("https://").partition("/blob/")[0],
        )
        for q in cut
    ]
    if show.rows(names, rows, output):
        more = f"{len(found)} offers" + (f", {len(cut)} shown (--limit 0 for all)" if len(cut) < len(found) else "")
        print("; ".join(filter(None, (more, freshness.said((q.observed_at for q in found), _day(as_of))))))


@app.command()
@takes("output")
def history(
    output: dict[str, Any],
    gpu: Gpu = None,
    provider: Provider = None,
    term: Terms = None,
    region: Region = None,
    instance: Instance = None,
    n_gpus: Gpus = None,
    since: Annotated[str | None, typer.Option("--since", help="from that day on, YYYY-MM-DD")] = None,
    svg: Annotated[str | None, typer.Option("--svg", help="write the chart as a picture to this file")] = None,
) -> None:
    """Every price that was seen, as a chart in the terminal, as SVG or as rows."""
    from pathlib import Path

    from perrun.prices import chart, desk
    from perrun.surfaces.cli import show

    chosen = _filter(gpu=gpu, provider=provider, term=term, region=region, instance=instance, n_gpus=n_gpus)
    with desk.opened() as book:
        found = desk.history(book, chosen, _day(since, "--since"))
    if output["json"]:
        show.as_json([quote._asdict() for quote in found])
    elif any(output.values()):
        names = ("seen", "provider", "instance", "region", "term", "rig", "usd_per_hour", "usd_per_gpu_hour", "source")
        rows = [
            (q.observed_at, q.provider, q.instance, q.region, q.term, f"{q.n_gpus}x {q.gpu}", q.usd_per_hour,
             q.usd_per_gpu_hour, q.source)
            for q in found
        ]  # fmt: skip
        show.rows(names, rows, output)
    else:
        lines, more = chart.series_of(found)
        print(chart.text(lines), end="")
        if more:
            print(f"  and {more} more offers: narrow with --provider, --instance, --term, --region")
    if svg is not None:
        asked = ", ".join((*chosen.gpu, *chosen.provider, *chosen.instance)) or "all"
        Path(svg).write_text(chart.svg(chart.series_of(found)[0], f"$ per GPU-hour: {asked}"), encoding="utf-8")


@app.command()
@takes("output")
def market(
    output: dict[str, Any],
    gpu: Gpu = None,
    provider: Provider = None,
    term: Terms = None,
    region: Region = None,
    n_gpus: Gpus = None,
    as_of: AsOf = None,
    claim: Annotated[
        str | None, typer.Option("--claim", help="test e.g. 'lowcostgpu: at least 30 % below the median'")
    ] = None,
) -> None:
    """Minimum, quartiles and maximum per card and term in $ per GPU-hour, with n, dates and the week's change."""
    from perrun.prices import desk, freshness
    from perrun.surfaces.cli import show

    chosen, day = _filter(gpu=gpu, provider=provider, term=term, region=region, n_gpus=n_gpus), _day(as_of)
    if claim is not None:
        _claim(claim, chosen, day, output)
        return
    with desk.opened() as book:
        found = desk.markets(book, chosen, day)
    if output["json"]:
        show.as_json([_plain(one) for one in found])
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
        print(freshness.said((one.newest for one in found), day))


def _plain(one: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


def _claim(said: str, chosen: Any, day: date | None, output: dict[str, Any]) -> None:
    """Exit code 1 when the claim is false for a card."""
    from perrun.prices import desk
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        tested = desk.claim(book, said, chosen, day)
    holds = all(one.holds for one in tested)
    if output["json"]:
        show.as_json({"claim": said, "holds": holds, "cards": [_plain(one) for one in tested]})
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


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="CSV or YAML with your prices; docs/prices.md has the columns")],
    partial: Annotated[bool, typer.Option("--partial", help="take the good rows and list the others")] = False,
    name: Annotated[str | None, typer.Option("--name", help="name of the source, default: the file's")] = None,
) -> None:
    """Put your own prices into the book: negotiated rates, owned cards, on-premises. All of a file or nothing."""
    import sys

    from perrun.prices import desk

    with desk.opened() as book:
        done = desk.import_file(
            book, file, partial=partial, name=name, told=lambda problem: print(f"{file} {problem}", file=sys.stderr)
        )
    added = done.added
    left = f", {len(done.problems)} left out" if done.problems else ""
    print(f"{done.source}: {added.new} new, {added.changed} changed, {added.same} same, {added.gone} gone{left}")
    for quote, reason in done.held:
        print(f"  held back: {quote.provider} {quote.n_gpus}x {quote.gpu} {quote.term}: {reason}")
    if done.held:
        print("  perrun prices check --accept N publishes one that is right")


@app.command()
def export(
    gpu: Gpu = None,
    provider: Provider = None,
    term: Terms = None,
    region: Region = None,
    instance: Instance = None,
    n_gpus: Gpus = None,
    as_of: AsOf = None,
    to: Annotated[str | None, typer.Option("--to", help="file to write, default: standard output")] = None,
) -> None:
    """Offers as a CSV that `perrun prices import` and `perrun plan --prices` take."""
    from pathlib import Path

    from perrun.prices import desk

    chosen = _filter(gpu=gpu, provider=provider, term=term, region=region, instance=instance, n_gpus=n_gpus)
    with desk.opened() as book:
        text = desk.export(book, chosen, _day(as_of))
    if to is None:
        print(text, end="")
    else:
        Path(to).write_text(text, encoding="utf-8")


@app.command()
@takes("output")
def sources(output: dict[str, Any]) -> None:
    """Where prices come from, whether a key is needed, and when each was last asked and last answered."""
    from perrun.prices import desk
    from perrun.prices.sources.http import key_of
    from perrun.surfaces.cli import show

    with desk.opened() as book:
        found = desk.states(book)
    rows: list[tuple[Any, ...]] = []
    for source, state in found:
        key = "none"
        if source is not None and source.keys:
            said = "set" if key_of(source.keys) else ("missing" if source.needs_key else "not needed")
            key = f"{' or '.join(source.keys)}: {said}"
        rows.append(
            (
                source.name if source else state.name if state else "",
                source.endpoint if source else "imported or shipped",
                key,
                source.unit if source else "",
                f"{state.stored_at:%Y-%m-%d %H:%M}" if state and state.stored_at else "never",
                (state.error if state else "") or "",
            )
        )
    names = ("source", "endpoint", "key", "unit", "stored", "error")
    if output["json"]:
        show.as_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show.rows(names, rows, output)


@app.command()
def check(
    accept: Annotated[list[int] | None, typer.Option("--accept", help="publish this price after all")] = None,
    drop: Annotated[list[int] | None, typer.Option("--drop", help="drop this price for good")] = None,
) -> None:
    """Prices that were held back and why, sources that fail, prices over a week old. Exit code 1 if any waits."""
    from perrun.prices import desk

    with desk.opened() as book:
        if accept or drop:
            desk.decide(book, accept or (), drop or ())
        found = desk.check(book)
    for one in found.held:
        quote = one.quote
        print(f"{one.id}: {one.source}: {quote.provider} {quote.instance} {quote.region} {quote.term}: {one.reason}")
    for quote, reason in found.doubtful:
        print(f"stored but doubtful: {quote.provider} {quote.instance} {quote.region} {quote.term}: {reason}")
    for state in found.failing:
        print(f"{state.name} fails: {state.error}")
    print(
        f"{found.offers} offers, {found.old} of them over a week old; {len(found.held)} held back, "
        f"{len(found.doubtful)} doubtful, {len(found.failing)} sources failing"
    )
    if found.held or found.doubtful or found.failing:
        raise typer.Exit(1)


@app.command()
def refresh(
    source: Annotated[list[str] | None, typer.Option("--source", help="only these sources")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="seconds that one source may take")] = 30.0,
) -> None:
    """Ask all sources at once; one that fails keeps its previous prices and stops no other."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from perrun.errors import Unavailable
    from perrun.prices import desk
    from perrun.prices import sources as known

    total = len(known.chosen(source))
    with (
        desk.opened() as book,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bar,
    ):
        task = bar.add_task("asking", total=total)
        outcomes = desk.refreshed(book, source, timeout, told=lambda _: bar.advance(task))
    for outcome in outcomes:
        print(_outcome(outcome))
    if outcomes and all(outcome.added is None and not outcome.skipped for outcome in outcomes):
        raise Unavailable("no source answered", hint="the prices of the book stay as they were")


def _outcome(outcome: Any) -> str:
    if outcome.skipped:
        return f"{outcome.source}: skipped, {outcome.skipped}"
    if outcome.added is None:
        return f"{outcome.source}: failed, its previous prices stay: {outcome.error}"
    added = outcome.added
    line = (
        f"{outcome.source}: {added.new} new, {added.changed} changed, {added.same} same, {added.gone} gone, "
        f"{added.quarantined} held back ({outcome.seconds:.1f} s)"
    )
    if outcome.missing:
        line += f"; did not come: {', '.join(outcome.missing)}"
    if outcome.unknown_cards:
        shown = ", ".join(outcome.unknown_cards[:8]) + (", ..." if len(outcome.unknown_cards) > 8 else "")
        line += f"; cards that the facts do not hold: {shown}"
    return line


@app.command()
def publish() -> None:
    """Write the book's current offers where perrun plan reads them: after another machine refreshed a shared book."""
    from perrun.prices import desk
    from perrun.prices import publish as published

    with desk.opened() as book:
        print(published.publish(book))


@app.command()
@takes("output")
def interruption(
    output: dict[str, Any],
    hours: Annotated[float, typer.Option("--hours", help="hours of work")],
    price: Annotated[float, typer.Option("--price", help="interruptible price of the rig, $/h")],
    on_demand: Annotated[float, typer.Option("--on-demand", help="on-demand price of the rig, $/h")],
    published: Annotated[str | None, typer.Option("--class", help="published monthly class, as '5-10%'")] = None,
    mtbi: Annotated[float | None, typer.Option("--mtbi", help="your own mean hours between interruptions")] = None,
    checkpoint: Annotated[float, typer.Option("--checkpoint", min=0, help="seconds to save once")] = 60.0,
    restart: Annotated[float | None, typer.Option("--restart", min=0, help="seconds to be back at work")] = None,
    interval: Annotated[
        float | None, typer.Option("--interval", help="hours between checkpoints; default: best")
    ] = None,
) -> None:
    """Interruptible or on-demand: expected cost, its spread by simulation, the hazard at which the verdict flips."""
    from perrun.prices import interruption as risk
    from perrun.surfaces.cli import show

    found = risk.report(
        hours,
        price,
        on_demand,
        interruption_class=published,
        mtbi_hours=mtbi,
        checkpoint_s=checkpoint,
        restart_s=restart,
        interval_hours=interval,
    )
    if output["json"]:
        show.as_json({**_plain(found), "cheaper": found.cheaper})
        return
    names = ("hazard", "interrupted every", "save every", "expected h", "expected $", "times", "$ at 10/50/90/99 %")
    rows = [
        (
            label,
            f"{one.mtbi_hours:,.0f} h",
            f"{60 * one.interval_hours:,.0f} min",
            f"{one.expected_hours:,.2f}",
            f"{one.usd:,.2f}",
            f"{one.interruptions:.2f}",
            " / ".join(f"{usd:,.2f}" for usd in one.quantile_usd.values()) or "never ends",
        )
        for label, one in (("quiet", found.low), ("middle", found.value), ("busy", found.high))
    ]
    if show.rows(names, rows, output, title=f"{hours:g} h of work, hazard: {found.source}"):
        flip = found.break_even_mtbi_hours
        said = "at any hazard" if flip == float("inf") else f"when interrupted oftener than every {flip:,.1f} h"
        print(f"on-demand ${found.on_demand_usd:,.2f}; cheaper: {found.cheaper}; on-demand is cheaper {said}")
