"""What the commands of `perrun prices` share: their group, the filter that users give, days, plain values."""

from datetime import date
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application
from perrun.surfaces.days import dated

app = application()
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="DAY", help="as known on that day, YYYY-MM-DD")]


def chosen(offers: dict[str, Any]) -> Any:
    """The flags of the group `offers` as a filter of the book."""
    from perrun.prices.desk import Filter

    lists = {name: tuple(value) for name, value in offers.items() if name != "n_gpus"}
    return Filter(**lists, n_gpus=offers.get("n_gpus"))


def day(text: str | None, flag: str = "--as-of") -> date | None:
    """Raises InvalidInput for what is no date."""
    return dated(text, f"{flag} {text!r} is no date")


def plain(one: Any) -> dict[str, Any]:
    """A dataclass as a dict, for JSON."""
    from dataclasses import asdict

    return asdict(one)


def machine(quote: Any) -> tuple[str, ...]:
    """The cells that name what is sold, in every table of offers."""
    return (f"{quote.n_gpus}x {quote.gpu}", quote.provider, quote.instance, quote.region, quote.term)


MACHINE = ("rig", "provider", "instance", "region", "term")
