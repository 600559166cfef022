"""Peak memory: lines worked by hand, measured peaks, and what must hold for any job."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perrun import memory, setting
from perrun.facts import models, stacks
from perrun.physics import memory as law
from perrun.physics import params, quant, sharding
from perrun.terms import Job, Rig, Strategy
from perrun.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B"
MISTRAL = "mistralai/Mistral-7B-v0.1"


def peak(model: str, job: dict | None = None, strategy: dict | None = None, rig: dict | None = None, **profile):
    stack = replace(stacks.get("fms-acceleration"), **profile)
    asked = setting.of(
        Job(model=model, **(job or {})), Strategy(**(strategy or {})), Rig(gpu="A100-SXM4-80GB", **(rig or {}))
    )
    return memory.peak(models.get(model).shape, asked, stack)


def test_nf4_is_4_127_bits_as_the_paper_says():
    # QLoRA section 3: double quantisation takes the constants from 0.5 to 0.127 bits per parameter
    assert quant.nf4_bytes_per_weight() * 8 == pytest.approx(4.127, abs=5e-4)
    assert quant.nf4_bytes_per_weight(double_quantisation=False) * 8 == 4.5


def test_gptq_with_groups_of_128():
    # per group of 128 inputs: one fp16 scale and one 4-bit zero: (16 + 4) / 128 bits more
    assert quant.gptq_bytes_per_weight() * 8 == pytest.approx(4 + 20 / 128)


def test_int8_has_one_scale_per_row():
    assert quant.int8_bytes(4096 * 1024, 1024) == 4096 * 1024 + 4 * 1024


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        # Llama-3.1-8B: hidden 4096, kv 1024, intermediate 14336, 32 layers; r (in + out) summed by hand
        ("all-linear", 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))),
        ("attn", 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024))),
        ("attn-qv", 32 * 16 * ((4096 + 4096) + (4096 + 1024))),
        ("q_proj,v_proj", 32 * 16 * ((4096 + 4096) + (4096 + 1024))),
    ],
)
def test_adapter_parameters(targets: str, expected: int):
    assert params.adapters_total(models.get(LLAMA).shape, targets, 16) == expected


def test_all_linear_r16_on_llama_8b_is_the_41_943_040_that_trainers_print():
    assert params.adapters_total(models.get(LLAMA).shape, "all-linear", 16) == 41_943_040


def test_full_fine_tuning_holds_five_copies_with_foreach_adamw():
    # bf16: weights, gradients, two moments, and the square root of one: 5 x 2 bytes
    found = peak(MISTRAL, {"method": "full"}, {"micro_batch": 1})
    assert memory.PHASES[int(found.phase)] == "optimizer"
    assert float(found.allocated) == pytest.approx(10 * 7_241_732_096, rel=5e-4)


def test_fused_adamw_needs_no_temporary():
    found = peak(MISTRAL, {"method": "full", "seq_len": 512}, {"micro_batch": 1}, optimizer_impl="fused")
    assert float(found.by_phase["optimizer"]) == pytest.approx(8 * 7_241_732_096, rel=5e-4)


def test_logits_of_a_plain_loss_take_14_bytes_per_word_while_they_are_kept():
    # bf16 logits 2, and in fp32 the log-softmax and two gradients: 3 x 4
    assert law.loss_backward_bytes(128256, "plain", 2.0, held=2.0, softcap=False) == 128256 * 14
    assert law.loss_backward_bytes(128256, "fused", 2.0, held=2.0, softcap=False) == 0


@pytest.mark.parametrize(
    ("job", "strategy", "profile", "measured_gib"),
    [
        # peak allocated as published: foundation-model-stack/fms-acceleration, benchmarks on one A100-80GB
        ({"method": "lora"}, {"micro_batch": 4}, {"keeps_logits": True}, 24.871),
        ({"method": "lora"}, {"micro_batch": 8}, {"keeps_logits": True}, 36.082),
        ({"method": "qlora"}, {"micro_batch": 4}, {"keeps_logits": True}, 15.249),
        ({"method": "qlora"}, {"micro_batch": 8}, {"keeps_logits": True}, 26.461),
        ({"method": "qlora"}, {"micro_batch": 8}, {"keeps_logits": True, "kbit_upcast": "norms"}, 34.461),
        ({"method": "full"}, {"micro_batch": 4}, {}, 67.46),
        ({"method": "lora"}, {"micro_batch": 8}, {"keeps_logits": True, "kernels": "fused", "loss": "triton"}, 31.926),
    ],
)
def test_measured_peaks_of_mistral_7b(job: dict, strategy: dict, profile: dict, measured_gib: float):
    found = peak(
        MISTRAL,
        {"lora_rank": 16, "lora_targets": "attn", "seq_len": 4096, **job},
        {"attention": "flash2", "checkpointing": "full", **strategy},
        **profile,
    )
    assert float(found.allocated) / GIB == pytest.approx(measured_gib, rel=0.006)


def test_lines_sum_to_the_peak():
    found = peak(LLAMA, {"method": "qlora"}, {"micro_batch": 2})
    assert sum(float(v) for v in found.lines.values()) == pytest.approx(float(found.allocated), rel=1e-12)


@pytest.mark.parametrize("name", ["fsdp2", "zero3"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_what_all_ranks_hold_sums_to_the_whole(name: str, n: int):
    held = sharding.shares(name, n, base_is_quantised=False, framework_shards_quantised=True)
    for part in (held.base, held.trained, held.gradients, held.states):
        assert n * float(part) == pytest.approx(1.0)


def test_zero_shards_states_first_then_gradients_then_weights():
    one, two, three = (
        sharding.shares(name, 4, base_is_quantised=False, framework_shards_quantised=True)
        for name in ("zero1", "zero2", "zero3")
    )
    assert [float(one.states), float(one.gradients), float(one.trained)] == [0.25, 1, 1]
    assert [float(two.states), float(two.gradients), float(two.trained)] == [0.25, 0.25, 1]
    assert [float(three.states), float(three.gradients), float(three.trained)] == [0.25, 0.25, 0.25]


def test_deepspeed_replicates_a_quantised_base():
    held = sharding.shares("zero3", 4, base_is_quantised=True, framework_shards_quantised=False)
    assert float(held.base) == 1


METHODS = st.sampled_from(["full", "lora", "qlora", "lora-int8", "dora"])
MODELS = st.sampled_from([LLAMA, "Qwen/Qwen2.5-32B", "google/gemma-2-9b", "mistralai/Mixtral-8x7B-v0.1"])


@given(MODELS, METHODS, st.integers(1, 8), st.integers(256, 8192), st.sampled_from(["none", "full"]), st.booleans())
@hypothesis_settings(max_examples=60, deadline=None)
def test_memory_rises_with_tokens_and_rank(model, method, micro, seq, checkpointing, fused):
    strategy = {"checkpointing": checkpointing, "fused_ce": fused}
    base = peak(model, {"method": method, "seq_len": seq}, {**strategy, "micro_batch": micro})
    more = peak(model, {"method": method, "seq_len": seq}, {**strategy, "micro_batch": micro + 1})
    longer = peak(model, {"method": method, "seq_len": seq + 256}, {**strategy, "micro_batch": micro})
    wider = peak(model, {"method": method, "seq_len": seq, "lora_rank": 64}, {**strategy, "micro_batch": micro})
    assert more.allocated >= base.allocated
    assert longer.allocated >= base.allocated
    assert wider.allocated >= base.allocated * (1 - 1e-12)


@given(MODELS, METHODS, st.integers(1, 8), st.integers(256, 8192), st.booleans())
@hypothesis_settings(max_examples=60, deadline=None)
def test_checkpointing_never_costs_memory(model, method, micro, seq, fused):
    job = {"method": method, "seq_len": seq}
    full, none = (
        peak(model, job, {"micro_batch": micro, "checkpointing": kind, "fused_ce": fused}, reentrant=False)
        for kind in ("full", "none")
    )
    assert full.allocated <= none.allocated * (1 + 1e-9)


@given(MODELS, st.integers(1, 4), st.integers(512, 4096))
@hypothesis_settings(max_examples=30, deadline=None)
def test_qlora_needs_at_most_lora_needs_at_most_full(model, micro, seq):
    peaks = [
        float(peak(model, {"method": method, "seq_len": seq}, {"micro_batch": micro}).allocated)
        for method in ("qlora", "lora", "full")
    ]
    assert peaks == sorted(peaks)


def test_arrays_give_what_scalars_give():
    model = models.get(LLAMA).shape
    stack = stacks.get("trl")
    asked = setting.of(Job(model=LLAMA, method="qlora"), Strategy(), Rig(gpu="A100-SXM4-80GB"))
    micro = np.array([1.0, 2.0, 4.0, 8.0])
    many = memory.peak(model, asked.with_(micro_batch=micro), stack)
    for index, size in enumerate(micro):
        one = memory.peak(model, asked.with_(micro_batch=size), stack)
        assert many.allocated[index] == pytest.approx(float(one.allocated), rel=1e-12)
        for name, line in one.lines.items():
            assert np.broadcast_to(many.lines[name], micro.shape)[index] == pytest.approx(float(line), rel=1e-12)
