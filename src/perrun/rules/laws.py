"""The arithmetic of the published rules, as their pages state it; docs/seeds.md says how far off they are."""

import re

EFFICIENCY_QLORA = 0.3  # seed page 002: "times a 0.3 efficiency factor for QLoRA's dequantisation overhead"


def tokens_per_s(dense_tflops: float, parameters: float, efficiency: float = EFFICIENCY_QLORA) -> float:
    """Training tokens per second of one GPU: TFLOPS / (6 N) x efficiency. Source: seed page 002."""
    return dense_tflops * 1e12 / (6.0 * parameters) * efficiency


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: float) -> float:
    """Dollars per million tokens of one GPU."""
    return usd_per_hour / 3600.0 / tokens_per_second * 1e6


def hours(tokens: float, tokens_per_second: float) -> float:
    """Hours to train over a number of tokens."""
    return tokens / tokens_per_second / 3600.0


def memory_gb(billions: float, bytes_per_parameter: float, margin: float = 1.0) -> float:
    """GB by bytes per parameter, activations not included. Source: seed page 004."""
    return billions * bytes_per_parameter * margin


def cost_on_b(cost_hours_a: float, speedup: float, usd_per_hour_b: float, n_gpus: int) -> float:
    """Dollars of a job on card B that takes `cost_hours_a` on A: hours / speed-up x price x cards. Seeds 000, 001."""
    return cost_hours_a / speedup * usd_per_hour_b * n_gpus


def nominal_billions(model: str, parameters: int) -> float:
    """The size that pages calculate with: the figure in the model's name (70B -> 70), else the exact count."""
    found = re.search(r"(\d+(?:\.\d+)?)[bB](?![a-zA-Z])", model.rsplit("/", 1)[-1])
    return float(found[1]) if found else parameters / 1e9
