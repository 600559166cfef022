"""Pictures of an answer as inline SVG: no script, no inline style, colours by class so that they follow the theme."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 380, 70, 46, 16, 24
BAR, GAP, BAR_LEFT = 22, 14, 190
MOST_BARS = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic scale from low to high over pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return round(self.start + min(share, 1.0) * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, float]]:
        """Values 1, 2, 5 x a power of ten with their places; only powers of ten on a long axis."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if last - first < 4 else (1,)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [(value, self.at(value)) for value in found if self.low <= value <= self.high]


def _axis(lows: list[float], highs: list[float], start: float, end: float) -> Axis:
    low, high = max(min(lows), 1e-9), max(highs)
    return Axis(low / 1.15, max(high, low * 1.5) * 1.15, start, end)


def scatter(plans: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Dollars against hours: points with their ranges, the front that no other plan beats, ticks of both axes."""
    if not plans:
        return None
    x = _axis([p["hours_low"] for p in plans], [p["hours_high"] for p in plans], LEFT, WIDTH - RIGHT)
    y = _axis([p["usd_low"] for p in plans], [p["usd_high"] for p in plans], HEIGHT - BOTTOM, TOP)
    points = [
        {
            "x": x.at(p["hours"]),
            "y": y.at(p["usd"]),
            "x1": x.at(p["hours_low"]),
            "x2": x.at(p["hours_high"]),
            "y1": y.at(p["usd_low"]),
            "y2": y.at(p["usd_high"]),
            "plan": p,
        }
        for p in plans
    ]
    line = " ".join(f"{x.at(p['hours'])},{y.at(p['usd'])}" for p in front(plans))
    return {"points": points, "front": line, "x": x.ticks(), "y": y.ticks(), "width": WIDTH, "height": HEIGHT}


def front(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plans that no other beats in both dollars and hours, fastest first."""
    found: list[dict[str, Any]] = []
    for plan in sorted(plans, key=lambda p: (p["hours"], p["usd"])):
        if not found or plan["usd"] < found[-1]["usd"]:
            found.append(plan)
    return found


def bars(plans: list[dict[str, Any]], usable: Callable[[dict[str, Any]], float]) -> dict[str, Any] | None:
    """What fills one GPU of each kind of machine, line by line, and what the card has [GiB]."""
    rigs: dict[tuple[str, int], dict[str, Any]] = {}
    for plan in plans:
        rigs.setdefault((plan["offer"]["rig"]["gpu"], plan["offer"]["rig"]["n_gpus"]), plan)
    shown = [(plan, usable(plan["offer"]["rig"])) for plan in list(rigs.values())[:MOST_BARS]]
    if not shown:
        return None
    names = list(dict.fromkeys(name for p, _ in shown for name in p["estimate"]["memory"]["lines"]))
    full = max(max(has, p["estimate"]["memory"]["device_gib"]) for p, has in shown) * 1.04
    scale = (WIDTH - BAR_LEFT - RIGHT) / full
    rows: list[dict[str, Any]] = []
    for number, (plan, has) in enumerate(shown):
        left = float(BAR_LEFT)
        parts: list[dict[str, Any]] = []
        for name, gib in plan["estimate"]["memory"]["lines"].items():
            width = max(gib, 0.0) * scale
            parts.append(
                {"x": round(left, 1), "width": round(width, 1), "kind": names.index(name), "name": name, "gib": gib}
            )
            left += width
        place = TOP + number * (BAR + GAP)
        limit = round(BAR_LEFT + has * scale, 1)
        rows.append({"y": place, "parts": parts, "limit": limit, "has": has, "plan": plan})
    return {"rows": rows, "names": names, "width": WIDTH, "height": TOP * 2 + len(shown) * (BAR + GAP), "bar": BAR}
