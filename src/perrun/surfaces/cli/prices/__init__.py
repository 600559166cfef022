"""perrun prices: the price book. Refresh it from its sources, ask it, and test claims against the market."""

from perrun.surfaces.cli.prices import asking, filling, risk
from perrun.surfaces.cli.prices.shared import app

__all__ = ["app", "asking", "filling", "risk"]


@app.callback(help=__doc__)
def prices() -> None:
    """The group."""
