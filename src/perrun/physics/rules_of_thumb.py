"""What people reckon with instead of a law: the rivals that every accuracy table sets beside ours."""

from typing import Any


def six_n(params: Any, tflops: Any, share: float = 0.3) -> Any:
    """Tokens per second and GPU by 'TFLOPS / 6N x 0.3'. Source: seed 000 of the project, a cost calculator's page."""
    return tflops * 1e12 * share / (6.0 * params)


def constant_mfu(params: Any, tflops: Any, mfu: float) -> Any:
    """Tokens per second and GPU at a constant model FLOPs utilisation of 6N.

    Source: PaLM, arXiv 2204.02311 appendix B defines MFU; 0.4 to 0.5 is what training reports quote (Llama 3, arXiv
    2407.21783 table 4: 38 to 43 %).
    """
    return tflops * 1e12 * mfu / (6.0 * params)
