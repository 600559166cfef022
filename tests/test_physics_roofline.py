"""Bytes of memory-bound work by hand; rates of attention kernels."""

import pytest

from perrun.facts import models
from perrun.physics import roofline


def llama() -> object:
    return models.get("meta-llama/Llama-2-7b-hf").shape


def test_elementwise_bytes_of_an_eager_llama_layer_by_hand() -> None:
    layer = llama().layers[0]
    forward, _ = roofline.elementwise(layer, 4096, "eager", 2.0)
    norms = 2 * 4096 * 36
    rotary = (32 + 32) * 128 * 20
    gate = 11008 * 10
    residual = 2 * 4096 * 6
    kernel = 2 * (32 + 32 + 32 + 32) * 128  # attention reads q, k, v and writes its output
    assert forward == norms + rotary + gate + residual + kernel


def test_fused_kernels_move_a_fraction() -> None:
    layer = llama().layers[0]
    eager, fused = (sum(roofline.elementwise(layer, 4096, k, 2.0)) for k in ("eager", "liger"))
    assert fused < eager / 2


def test_plain_loss_moves_what_the_chain_of_operations_says() -> None:
    product, fp32, shift, softmax, backward, unshift, cast, products = 2, 6, 8, 8, 12, 8, 6, 4
    assert roofline.LOSS["plain"] == product + fp32 + shift + softmax + backward + unshift + cast + products


def test_attention_kernels_are_as_good_as_their_papers_say() -> None:
    # FlashAttention-2 on A100 reaches 225 of 312 TFLOPS forward and 63 % backward at best, 335 of 989 on H100.
    assert 0.5 <= roofline.attention_share("flash2", 8.0) <= 0.72
    assert roofline.attention_share("flash2", 9.0) <= 335 / 989
    assert roofline.attention_share("flash3", 9.0) > 1.5 * roofline.attention_share("sdpa", 9.0)


def test_copies_reach_less_than_the_rated_bandwidth_and_most_of_it() -> None:
    measured = {"RTX 4090": (912, 1008), "RTX 3090": (831, 936), "V100": (766, 900)}  # chsasank/device-benchmarks
    shares = sorted(a / b for a, b in measured.values())
    assert shares[0] - 0.05 < roofline.BANDWIDTH < shares[-1] + 0.05


@pytest.mark.parametrize("kernels", sorted(roofline.MOVES))
def test_backward_moves_more_than_forward(kernels: str) -> None:
    forward, backward = roofline.elementwise(llama().layers[0], 4096, kernels, 2.0)
    assert 0 < forward < backward
