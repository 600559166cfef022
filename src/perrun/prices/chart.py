"""Prices over time, drawn in letters for a terminal and as SVG; a price holds until the next one was seen."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape

from perrun.prices.quote import Quote

MOST_SERIES = 8
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")  # Okabe and Ito


@dataclass(frozen=True, slots=True)
class Series:
    """One offer: the days on which its price was seen, oldest first, and dollars per GPU-hour on each."""

    label: str
    days: list[date]
    prices: list[float]

    def at(self, day: date) -> float | None:
        """The last price seen up to a day; None before the first."""
        found = bisect_right(self.days, day)
        return self.prices[found - 1] if found else None


def short_source(source: str) -> str:
    """A source as a reader tells it from others: an address without its scheme and the path in a repository."""
    return source.removeprefix("https://").partition("/blob/")[0]


def series_of(history: Iterable[Quote]) -> tuple[list[Series], int]:
    """One line an offer, those seen most often first, and how many more there are than can be told apart."""
    groups: dict[tuple[str, ...], list[Quote]] = {}
    for quote in history:
        key = (quote.provider, quote.instance, quote.region, quote.term, f"{quote.n_gpus}x {quote.gpu}", quote.source)
        groups.setdefault(key, []).append(quote)
    found: list[Series] = []
    for key, quotes in groups.items():
        by_day = {quote.observed_at: quote.usd_per_gpu_hour for quote in quotes}  # of one day the later
        label = " ".join(dict.fromkeys(part for part in (*key[:-1], short_source(key[-1])) if part))
        found.append(Series(label, sorted(by_day), [by_day[day] for day in sorted(by_day)]))
    found.sort(key=lambda one: (-len(one.days), one.label))
    return found[:MOST_SERIES], max(len(found) - MOST_SERIES, 0)


def _span(series: list[Series]) -> tuple[date, date, float, float]:
    first = min(one.days[0] for one in series)
    last = max(one.days[-1] for one in series)
    top = max(max(one.prices) for one in series)
    return first, max(last, first + timedelta(days=1)), 0.0, top * 1.05


def text(series: list[Series], width: int = 64, height: int = 14) -> str:
    """The chart in letters; where lines meet the later letter stands."""
    if not series:
        return "no price\n"
    first, last, low, top = _span(series)
    canvas = [[" "] * width for _ in range(height)]
    for number, one in enumerate(series):
        for column in range(width):
            price = one.at(first + timedelta(days=round(column * (last - first).days / (width - 1))))
            if price is not None:
                row = round((top - price) / (top - low) * (height - 1))
                canvas[row][column] = chr(ord("A") + number)
    lines: list[str] = []
    for row, cells in enumerate(canvas):
        lines.append(f"{top - (top - low) * row / (height - 1):8.2f} |{''.join(cells).rstrip()}")
    lines += [" " * 9 + "+" + "-" * width, f"{' ' * 10}{first}{last!s:>{width - 10}}"]
    lines += [f"  {chr(ord('A') + number)} {_legend(one)}" for number, one in enumerate(series)]
    return "\n".join(lines) + "\n"


def _legend(one: Series) -> str:
    return f"{one.label}: ${one.prices[-1]:.3f} per GPU-hour on {one.days[-1]}"


WIDTH, HEIGHT, LEFT, BOTTOM, LINE = 860, 360, 64, 40, 20


def svg(series: list[Series], title: str) -> str:
    """The chart as a picture of its own: steps, a grid, dates, and a legend below."""
    if not series:
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{LINE}"/>\n'
    first, last, low, top = _span(series)
    inner_w, inner_h = WIDTH - LEFT - 16, HEIGHT - BOTTOM - 32

    def x(day: date) -> float:
        return LEFT + inner_w * (day - first).days / (last - first).days

    def y(price: float) -> float:
        return 32 + inner_h * (top - price) / (top - low)

    total = HEIGHT + LINE * len(series) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for step in range(5):
        price = low + (top - low) * step / 4
        parts.append(f'<path d="M{LEFT} {y(price):.1f}h{inner_w}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(price) + 4:.1f}" text-anchor="end">${price:.2f}</text>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        day = first + timedelta(days=round(share * (last - first).days))
        parts.append(f'<text x="{x(day):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="{anchor}">{day}</text>')
    for number, one in enumerate(series):
        colour = COLOURS[number]
        path = f"M{x(one.days[0]):.1f} {y(one.prices[0]):.1f}"
        for day, price in zip(one.days[1:], one.prices[1:], strict=True):
            path += f"H{x(day):.1f}V{y(price):.1f}"
        parts.append(f'<path d="{path}H{x(last):.1f}" fill="none" stroke="{colour}" stroke-width="2"/>')
        height = HEIGHT + LINE * number + 8
        parts.append(f'<rect x="{LEFT}" y="{height - 9}" width="14" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 20}" y="{height}">{escape(_legend(one))}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
