"""Pages 000 and 001: hours on A, a stated speed-up, and the ratio of two prices."""

from perrun.rules import laws
from perrun.rules.data import Table, data


def differs() -> Table:
    """What differs between the cards, and by how much."""
    table: Table = []
    for row in data("differs"):
        numbers = row["unit"] != ""
        ratio = f"{float(row['b']) / float(row['a']):.2f}" if numbers else ""
        table.append({"what": row["what"], "unit": row["unit"], "a100": row["a"], "h100": row["b"], "ratio": ratio})
    return table


def jobs() -> Table:
    """Five jobs: cost on A, on B by the stated speed-up, the cheaper one and by how much."""
    table: Table = []
    for row in data("jobs"):
        n, hours = int(row["n_gpus"]), float(row["hours_on_a"])
        a = hours * float(row["usd_per_hour_a"]) * n
        b = laws.cost_on_b(hours, float(row["speedup"]), float(row["usd_per_hour_b"]), n)
        table.append(
            {
                **{key: row[key] for key in ("job", "method", "n_gpus", "gpu_a", "gpu_b")},
                "price_a_usd_per_gpu_hour": row["usd_per_hour_a"],
                "price_b_usd_per_gpu_hour": row["usd_per_hour_b"],
                "hours_on_a": row["hours_on_a"],
                "speedup_b_over_a": row["speedup"],
                "cost_a_usd": f"{a:.2f}",
                "cost_b_usd": f"{b:.2f}",
                "cheaper": "a" if a < b else "b",
                "saving_percent": f"{(1 - min(a, b) / max(a, b)) * 100:.0f}",
                "hours_are": "stated by the page, not predicted",
            }
        )
    return table


def decisions() -> Table:
    """What to rent by the stated speed-ups and the ratio of the prices; beside it what the page says."""
    first = data("jobs")[0]
    ratio = float(first["usd_per_hour_b"]) / float(first["usd_per_hour_a"])
    table: Table = []
    for row in data("decisions"):
        low, high = float(row["speedup_low"]), float(row["speedup_high"])
        rent, why = _chosen(low, high, ratio)
        table.append(
            {
                "what_you_do": row["what"],
                "rent": rent,
                "why": why,
                "speedup_is": row["speedup_of"],
                "page_rents": row["page_rents"],
                "page_why": row["page_why"],
            }
        )
    return table


def _chosen(low: float, high: float, ratio: float) -> tuple[str, str]:
    """The card, and the reason in words that follow from the three numbers."""
    said = f"{low:g}x" if low == high else f"{low:g} to {high:g}x"
    if high < ratio:
        return "A100 SXM4", f"{said} is below {ratio:.2f}x: at least {ratio / high - 1:.0%} dearer on the H100"
    if low > ratio:
        return "H100 SXM", f"{said} is above {ratio:.2f}x: at least {1 - ratio / low:.0%} cheaper on the H100"
    return "either", f"{said} holds {ratio:.2f}x"
