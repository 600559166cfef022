"""Predicted against measured as a small SVG, drawn by hand: two log-log panels, one colour a publication."""

import math
from collections.abc import Sequence
from html import escape

from perrun.validation.scores import Point

SIZE = 420  # of one panel's axes [px]
MARGIN = (64, 40, 20, 56)  # left, top, right, bottom
LEGEND_ROW = 16
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d5a97", "#e08e1b", "#00798c", "#7f5539", "#444444")
MARKS = ("circle", "square", "diamond")  # the next one when the colours are used up
BAND = 1.25  # the dashed lines: predicted is a quarter above or a fifth below what was measured


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten inside the range; only powers of ten when that is many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) < 5 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _label(value: float) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:g}"


def _mark(at: tuple[float, float], radius: float, number: int, inside: str = "", opacity: float = 1) -> str:
    """The mark of the number-th publication."""
    x, y = at
    kind = MARKS[number // len(COLOURS) % len(MARKS)]
    look = f'fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="{opacity}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {look}>{inside}</circle>'
    corners = ((-1, -1), (1, -1), (1, 1), (-1, 1)) if kind == "square" else ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0))
    path = " ".join(f"{x + radius * dx:.1f},{y + radius * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" {look}>{inside}</polygon>'


def _panel(points: Sequence[Point], numbers: dict[str, int], title: str, unit: str, left: float) -> list[str]:
    values = [value for point in points for value in (point.predicted, point.measured)]
    low, high = min(values) / 1.15, max(values) * 1.15
    scale = SIZE / math.log(high / low)
    x0, y0 = left + MARGIN[0], MARGIN[1] + SIZE

    def at(measured: float, predicted: float) -> tuple[float, float]:
        return x0 + scale * math.log(measured / low), y0 - scale * math.log(predicted / low)

    def line(start: tuple[float, float], end: tuple[float, float], look: str) -> str:
        return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" {look}/>'

    out = [f'<text x="{x0 + SIZE / 2:.0f}" y="24" text-anchor="middle" font-weight="bold">{escape(title)}</text>']
    for value in _ticks(low, high):
        x, y = at(value, low)[0], at(low, value)[1]
        out.append(line((x, y0), (x, y0 - SIZE), 'stroke="#e4e4e4"'))
        out.append(line((x0, y), (x0 + SIZE, y), 'stroke="#e4e4e4"'))
        out.append(f'<text x="{x:.1f}" y="{y0 + 16}" text-anchor="middle">{_label(value)}</text>')
        out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(value)}</text>')
    out.append(f'<rect x="{x0}" y="{y0 - SIZE}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#777"/>')
    out.append(line(at(low, low), at(high, high), 'stroke="#333"'))
    out.append(line(at(low, low * BAND), at(high / BAND, high), 'stroke="#999" stroke-dasharray="4 4"'))
    out.append(line(at(low * BAND, low), at(high, high / BAND), 'stroke="#999" stroke-dasharray="4 4"'))
    for point in points:
        name = escape(f"{point.source}, {point.method}: {point.predicted:.4g} for {point.measured:.4g}")
        place = at(point.measured, point.predicted)
        out.append(_mark(place, 2.6, numbers[point.source], f"<title>{name}</title>", opacity=0.55))
    middle = y0 - SIZE / 2
    out.append(f'<text x="{x0 + SIZE / 2:.0f}" y="{y0 + 36}" text-anchor="middle">measured [{escape(unit)}]</text>')
    turned = f'transform="rotate(-90 {left + 16:.0f} {middle:.0f})"'
    out.append(
        f'<text x="{left + 16:.0f}" y="{middle:.0f}" text-anchor="middle" {turned}>predicted [{escape(unit)}]</text>'
    )
    return out


def svg(memory: Sequence[Point], speed: Sequence[Point]) -> str:
    """The plot of memory per GPU and of tokens/s; an empty panel is left out. '' when there is nothing to draw."""
    panels = [
        (points, title, unit)
        for points, title, unit in (
            (memory, "Peak memory of one GPU", "GiB"),
            (speed, "Speed over all GPUs", "tokens/s"),
        )
        if points
    ]
    if not panels:
        return ""
    sources = sorted({point.source for points, _, _ in panels for point in points})
    numbers = {source: i for i, source in enumerate(sources)}
    width = MARGIN[0] + SIZE + MARGIN[2]
    columns = 2 * len(panels)
    rows = math.ceil(len(sources) / columns)
    total, height = width * len(panels), MARGIN[1] + SIZE + MARGIN[3] + rows * LEGEND_ROW + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" width="{total}" height="{height}" '
        'font-family="sans-serif" font-size="11" role="img">',
        "<title>Predicted against measured, by publication</title>",
        f'<rect width="{total}" height="{height}" fill="#fff"/>',
    ]
    for i, (points, title, unit) in enumerate(panels):
        out += _panel(points, numbers, title, unit, i * width)
    for i, source in enumerate(sources):
        x = 16 + (i % columns) * (total - 16) / columns
        y = MARGIN[1] + SIZE + MARGIN[3] + (i // columns) * LEGEND_ROW
        out.append(_mark((x, y), 4, i))
        out.append(f'<text x="{x + 9:.0f}" y="{y + 4}">{escape(source)}</text>')
    return "\n".join([*out, "</svg>", ""])
