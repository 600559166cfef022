"""perrun diff OLD NEW --gpu G: what a change of a configuration does to memory, hours and dollars."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()
COLUMNS = ("", "before", "after", "change")


@app.command(help=__doc__)
@takes("job", "output")
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="a configuration of trl, axolotl, ..., or its folder")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="the same, changed")],
    job: dict[str, Any],
    output: dict[str, Any],
    gpu: Annotated[str, typer.Option("--gpu", metavar="CARD", help="the card that both run on")],
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="where the files name none")] = None,
    n_gpus: Annotated[
        int | None,
        typer.Option("--n-gpus", metavar="N", min=1, help="GPUs over all nodes, of both (default: as each says)"),
    ] = None,
    n_nodes: Annotated[int | None, typer.Option("--n-nodes", metavar="N", min=1, help="machines")] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="USD", help="per GPU-hour (default: the market's median)")
    ] = None,
    prices: Annotated[str | None, typer.Option("--prices", metavar="FILE", help="your own price file (CSV)")] = None,
) -> None:
    from perrun import verbs
    from perrun.errors import InvalidInput
    from perrun.surfaces.cli import show

    if price is not None and not price > 0:
        raise InvalidInput(f"price is {price:g}", expected="dollars per GPU-hour, above 0")
    given = {**job, **({"model": model} if model else {})}
    found = verbs.diff([old], [new], gpu, given, n_gpus=n_gpus, n_nodes=n_nodes, price=price, prices=prices)
    if output["json"]:
        show.as_json(found)
    elif output["markdown"]:
        print(f"{found.verdict}\n")
        show.rows(COLUMNS, table(found), output)
        print(f"\n{_under(found)}")
    elif show.rows(COLUMNS, table(found), output, title=found.verdict):
        print(_under(found))


def _under(found: Any) -> str:
    """What the figures rest on, and what was not read."""
    job = found.new.job
    lines = [
        f"On {found.new.rig} at ${found.usd_per_gpu_hour:,.2f} per GPU-hour ({found.price_of}); "
        f"{job.examples:,} rows of {job.tokens_per_example:,} tokens.",
        *(f"Note: {note}." for note in found.notes),
    ]
    if any(setting.changes_loss for setting in found.settings):
        names = ", ".join(setting.name for setting in found.settings if setting.changes_loss)
        lines.append(f"The loss curve changes too: {names}.")
    if found.new.unread:
        lines.append(f"Not read: {', '.join(found.new.unread)}.")
    return "\n".join(lines)


def table(found: Any) -> list[tuple[str, str, str, str]]:
    """Settings that differ, then memory, speed, hours and dollars."""
    old, new = found.old, found.new
    rows = [(one.name, str(one.old), str(one.new), "") for one in found.settings]
    return [
        *rows,
        _line("memory of a GPU [GiB]", old.estimate.memory.device_gib, new.estimate.memory.device_gib, 1),
        ("fits", f"{old.estimate.fits_probability:.0%}", f"{new.estimate.fits_probability:.0%}", ""),
        _line("tokens/s", old.estimate.tokens_per_s, new.estimate.tokens_per_s, 0),
        _line("hours", old.hours, new.hours, 2),
        _line("$ per run", old.usd, new.usd, 2),
    ]


def _line(name: str, old: float, new: float, digits: int) -> tuple[str, str, str, str]:
    share = f" ({(new - old) / old:+.0%})" if old else ""
    return name, f"{old:,.{digits}f}", f"{new:,.{digits}f}", f"{new - old:+,.{digits}f}{share}"
