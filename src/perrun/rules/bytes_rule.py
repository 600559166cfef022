"""Page 004: bytes per parameter, summed nominal memory, and hours that are sizes of blocks."""

from perrun.rules import laws
from perrun.rules.data import Table, data

# The column that the page judges each method by: with margin for LoRA, and the larger of the two AdamW rules, so
# that 8x H200 (1128 GB) is too small although it covers the 16-byte rule on paper.
JUDGED_BY = {
    "qlora": "qlora",
    "lora": "lora-bf16",
    "full_adam8bit": "full-adam8bit-huggingface",
    "full_adamw": "full-adamw-huggingface",
}


def planning(billions: float = 70.0) -> Table:
    """GB by method under the bytes-per-parameter rules."""
    return [
        {
            "rule": row["rule"],
            "bytes_per_param_low": row["bytes_low"],
            "bytes_per_param_high": row["bytes_high"],
            "margin": row["margin"],
            "gb_low": f"{laws.memory_gb(billions, float(row['bytes_low'])):.10g}",
            "gb_high": f"{laws.memory_gb(billions, float(row['bytes_high']), float(row['margin'])):.10g}",
            "origin": row["origin"],
        }
        for row in data("bytes")
    ]


def fit(billions: float = 70.0) -> Table:
    """Methods x rigs: whether the summed nominal memory covers the rule."""
    needed = {row["rule"]: float(row["gb_high"]) for row in planning(billions)}
    table: Table = []
    for row in data("rigs"):
        total = int(row["n_gpus"]) * float(row["memory_gb_per_gpu"])
        verdicts = {method: "yes" if total >= needed[rule] else "no" for method, rule in JUDGED_BY.items()}
        table.append(
            {
                "rig": row["rig"],
                "n_gpus": row["n_gpus"],
                "gpu": row["gpu"],
                "total_memory_gb": f"{total:g}",
                "price_usd_per_hour": row["usd_per_hour"],
                **verdicts,
            }
        )
    return table


def rigs() -> Table:
    """By method the GB of its rule, and the rigs that the page names for it at their prices."""
    gb = {row["rule"]: (row["gb_low"], row["gb_high"]) for row in planning()}
    usd = {row["rig"]: row["usd_per_hour"] for row in data("rigs")}
    table: Table = [
        {
            "method": row["method"],
            "gb_low": gb[row["rule_low"]][0],
            "gb_high": gb[row["rule_high"]][1],
            "rigs": " or ".join(f"{rig} (${usd[rig]}/h)" for rig in row["rigs"].split(";")),
        }
        for row in data("methods")
    ]
    small = [row["rig"] for row in fit() if row["qlora"] == "no"]
    low, high = gb[JUDGED_BY["qlora"]]
    return [*table, {"method": "too small for QLoRA", "gb_low": low, "gb_high": high, "rigs": ", ".join(small)}]


def assumed() -> Table:
    """Cost of the page's runs under its assumed hours."""
    table: Table = []
    for row in data("assumed"):
        gpu_hours = int(row["n_gpus"]) * float(row["hours"])
        table.append(
            {
                "method": row["method"],
                "n_gpus": row["n_gpus"],
                "gpu": row["gpu"],
                "price_usd_per_gpu_hour": row["usd_per_gpu_hour"],
                "assumed_hours": row["hours"],
                "gpu_hours": f"{gpu_hours:g}",
                "cost_usd": f"{gpu_hours * float(row['usd_per_gpu_hour']):.2f}",
                "hours_are": "assumed by the page, not measured",
            }
        )
    return table


def methods() -> Table:
    """What each run costs over the first, per hour of hardware and per run."""
    rows = assumed()
    per_hour = [int(row["n_gpus"]) * float(row["price_usd_per_gpu_hour"]) for row in rows]
    per_run = [float(row["cost_usd"]) for row in rows]
    return [
        {
            "method": row["method"],
            "rig": f"{row['n_gpus']}x {row['gpu']}",
            "usd_per_hour": f"{hour:.2f}",
            "ratio_per_hour": f"{hour / per_hour[0]:.1f}",
            "assumed_hours": row["assumed_hours"],
            "usd_per_run": row["cost_usd"],
            "ratio_per_run": f"{run / per_run[0]:.1f}",
            "hours_are": row["hours_are"],
        }
        for row, hour, run in zip(rows, per_hour, per_run, strict=True)
    ]
