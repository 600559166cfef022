"""Values with their ranges, one row each, in letters for a terminal and as SVG: what varied questions cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 40  # of the axis, in letters
ROW, LEFT, PANEL, GAP, HEAD = 22, 240, 300, 60, 46  # of the picture [px]


@dataclass(frozen=True, slots=True)
class Row:
    """One value with its low and high, in the unit of its panel."""

    label: str
    value: float
    low: float
    high: float


def text(rows: Sequence[Row], unit: str) -> list[str]:
    """'seq_len 1024  |   --o---|': from 0 to the highest high."""
    top = max((row.high for row in rows), default=1.0) or 1.0
    wide = max((len(row.label) for row in rows), default=0)
    lines: list[str] = []
    for row in rows:
        low, value, high = (round(x / top * (WIDTH - 1)) for x in (row.low, row.value, row.high))
        bar = "".join("o" if i == value else "-" if low <= i <= high else " " for i in range(WIDTH))
        lines.append(f"{row.label:<{wide}} |{bar}| {row.value:,.2f} ({row.low:,.2f}-{row.high:,.2f}) {unit}")
    return lines


def svg(panels: Sequence[tuple[str, Sequence[Row]]], title: str) -> str:
    """Panels side by side, which share the labels of their rows."""
    n = max(len(rows) for _, rows in panels)
    width, height = LEFT + len(panels) * (PANEL + GAP), HEAD + n * ROW + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="18" font-size="14">{escape(title)}</text>',
    ]
    for number, (unit, rows) in enumerate(panels):
        parts += _panel(unit, rows, LEFT + number * (PANEL + GAP), height)
    for i, row in enumerate(panels[0][1]):
        parts.append(f'<text x="12" y="{HEAD + i * ROW + 15}">{escape(row.label)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(unit: str, rows: Sequence[Row], left: float, height: float) -> list[str]:
    top = max((row.high for row in rows), default=1.0) or 1.0
    out = [f'<text x="{left}" y="{HEAD - 10}" font-weight="bold">{escape(unit)}</text>']
    for share in (0.0, 0.5, 1.0):
        x = left + share * PANEL
        out.append(f'<path d="M{x:.1f} {HEAD}V{height - 26}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{share * top:.3g}</text>')
    for i, row in enumerate(rows):
        y = HEAD + i * ROW + ROW / 2
        low, value, high = (left + PANEL * x / top for x in (row.low, row.value, row.high))
        told = f"<title>{escape(row.label)}: {row.value:,.2f} ({row.low:,.2f}-{row.high:,.2f})</title>"
        out.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="#0072b2" stroke-width="2"/>')
        out.append(f'<circle cx="{value:.1f}" cy="{y:.1f}" r="4" fill="#d55e00">{told}</circle>')
    return out
