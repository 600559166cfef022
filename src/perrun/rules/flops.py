"""Page 002: TFLOPS over 6N times 0.3, marketplace medians, and memory by a rule that it does not state."""

from perrun.rules import laws
from perrun.rules.data import Table, data

# What the page calculates with: 8.03B and 70.6B parameters, 22.5M and 8M tokens.
SMALL, LARGE = 8.03e9, 70.6e9
SMALL_TOKENS, LARGE_TOKENS = 22.5e6, 8e6
# Cards whose memory holds the page's 44.3 GB for a 70B QLoRA run, and that it lists there.
LARGE_CARDS = ("L40S-48GB", "A100-80GB", "H100-80GB", "H200-141GB")
# The cards of each of the page's tables, in its order.
OF_MEMORY = ("A100-40GB", "A100-80GB", "H100-80GB")
OF_SPEED = ("A100-40GB", "A100-80GB", "H100-80GB", "H200-141GB")
OF_SMALL_RUN = ("RTX-4090-24GB", "H100-80GB", "A100-40GB", "L40S-48GB", "A100-80GB", "H200-141GB")
OF_LARGE_RUN = ("H100-80GB", "L40S-48GB", "H200-141GB", "A100-80GB")


def cards() -> Table:
    """Tokens per second, dollars per million tokens, hours and cost of the page's two runs, by card."""
    table: Table = []
    for row in data("cards"):
        tflops, price = float(row["dense_bf16_tflops"]), float(row["usd_per_gpu_hour"])
        small = laws.tokens_per_s(tflops, SMALL)
        large = laws.hours(LARGE_TOKENS, laws.tokens_per_s(tflops, LARGE))
        took = laws.hours(SMALL_TOKENS, small)
        fits = row["gpu"] in LARGE_CARDS
        table.append(
            {
                "gpu": row["gpu"],
                "memory_gb": row["memory_gb"],
                "dense_bf16_tflops": row["dense_bf16_tflops"],
                "price_usd_per_gpu_hour": f"{price:.2f}",
                "tokens_per_s_8b_qlora": f"{small:.0f}",
                "usd_per_million_tokens_8b_qlora": f"{laws.usd_per_million_tokens(price, small):.3f}",
                "hours_22_5m_tokens": f"{took:.2f}",
                "cost_22_5m_tokens_usd": f"{took * price:.2f}",
                "hours_70b_8m_tokens": f"{large:.2f}" if fits else "",
                "cost_70b_8m_tokens_usd": f"{large * price:.2f}" if fits else "",
            }
        )
    return table


def _of(names: tuple[str, ...], columns: dict[str, str]) -> Table:
    """Some columns (new name: name in `cards`) of some cards, in an order of their own."""
    rows = {row["gpu"]: row for row in cards()}
    return [{"gpu": name} | {new: rows[name][old] for new, old in columns.items()} for name in names]


def memory() -> Table:
    """GB as printed, and which cards have as much."""
    sizes = {row["gpu"]: float(row["memory_gb"]) for row in data("cards")}
    return [
        {
            "model": row["model"],
            "method": row["method"],
            "memory_gb": row["gb"],
            **{card: "fits" if float(row["gb"]) <= sizes[card] else "no" for card in OF_MEMORY},
        }
        for row in data("memory")
    ]


def speed() -> Table:
    """Tokens per second of 8B QLoRA, and over the first card."""
    peaks = {row["gpu"]: float(row["dense_bf16_tflops"]) for row in data("cards")}
    columns = {"dense_bf16_tflops": "dense_bf16_tflops", "tokens_per_s": "tokens_per_s_8b_qlora"}
    rows = _of(OF_SPEED, columns)
    return [row | {"relative": f"{peaks[row['gpu']] / peaks[OF_SPEED[0]]:.2f}"} for row in rows]


def prices() -> Table:
    """Dollars per GPU-hour and per million tokens."""
    columns = {
        "memory_gb": "memory_gb",
        "price_usd_per_gpu_hour": "price_usd_per_gpu_hour",
        "usd_per_million_tokens": "usd_per_million_tokens_8b_qlora",
    }
    return _of(tuple(row["gpu"] for row in data("cards")), columns)


def small_run() -> Table:
    """8B QLoRA, 5,000 examples of 1,500 tokens, 3 epochs: 22.5M tokens."""
    return _of(OF_SMALL_RUN, {"hours": "hours_22_5m_tokens", "cost_usd": "cost_22_5m_tokens_usd"})


def large_run() -> Table:
    """70B QLoRA, 2,000 examples of 2,000 tokens, 2 epochs: 8M tokens."""
    return _of(OF_LARGE_RUN, {"hours": "hours_70b_8m_tokens", "cost_usd": "cost_70b_8m_tokens_usd"})
