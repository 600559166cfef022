"""What must rise with what, in every table: memory with the method, dollars and hours with the tokens."""

from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perrun import estimator, planner, search, verbs
from perrun.facts import models
from perrun.terms import Job, Offer, Rig, Strategy

NAMES = (
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-27b-pt",
)
RIGS = [
    Rig(gpu="RTX-4090-24GB"),
    Rig(gpu="L4-24GB", n_gpus=2),
    Rig(gpu="A100-SXM4-80GB"),
    Rig(gpu="H100-SXM-80GB", n_gpus=8),
    Rig(gpu="H100-SXM-80GB", n_gpus=16, n_nodes=2),
]
SURER_THAN_SURE = 2.0  # a probability that nothing reaches, so that the search tells the least memory of each rig


def least(job: Job, framework: str) -> dict[Rig, float]:
    """GiB of the smallest strategy by rig."""
    found, refused = search.best(job, models.get(job.model), RIGS, {"framework": framework}, SURER_THAN_SURE)
    assert not refused
    return {best.rig: best.needs_gib for best in found}


@settings(deadline=None, max_examples=25)
@given(
    model=st.sampled_from(NAMES),
    framework=st.sampled_from(["trl", "unsloth", "torchtune"]),
    seq_len=st.sampled_from([512, 2048, 8192]),
    rank=st.sampled_from([8, 64]),
    objective=st.sampled_from(["sft", "dpo"]),
)
def test_qlora_needs_no_more_than_lora_and_lora_no_more_than_full(model, framework, seq_len, rank, objective):
    job = Job(model=model, seq_len=seq_len, lora_rank=rank, objective=objective, tokens_per_example=500)
    qlora, lora, full = (least(job.model_copy(update={"method": m}), framework) for m in ("qlora", "lora", "full"))
    for rig in RIGS:
        assert qlora[rig] <= lora[rig] <= full[rig], rig


def test_where_a_packed_base_is_not_shared_qlora_needs_more_than_lora() -> None:
    # ZeRO-3 splits 70.55B x 2 bytes over 8 ranks: 16.4 GiB each; bitsandbytes' weights stay whole on every rank:
    # 68.45B x 0.516 bytes of matrices and 2.1B x 2 bytes of embeddings and head are 36.8 GiB
    job = Job(model="meta-llama/Llama-3.1-70B", seq_len=512, tokens_per_example=500)
    found = {method: least(job.model_copy(update={"method": method}), "deepspeed") for method in ("qlora", "lora")}
    eight = RIGS[3]
    assert 16.4 < found["lora"][eight] < 36.8 < found["qlora"][eight]
    assert found["qlora"][RIGS[2]] < found["lora"][RIGS[2]]  # on one card there is nothing to share


@pytest.mark.parametrize("gpu", ["RTX-4090-24GB", "A100-SXM4-80GB", "H100-SXM-80GB"])
@pytest.mark.parametrize("micro_batch", [4, 16])
def test_at_one_strategy_qlora_is_slower_than_lora_because_it_unpacks_its_base(gpu: str, micro_batch: int) -> None:
    strategy = Strategy(micro_batch=micro_batch, grad_accum=16 // micro_batch)
    job = {"tokens_per_example": 1000, "seq_len": 2048}
    lora, qlora = (
        verbs.estimate(NAMES[1], Rig(gpu=gpu), {**job, "method": method}, strategy.model_dump(exclude={"grad_accum"}))
        for method in ("lora", "qlora")
    )
    assert qlora.time_lines["dequantisation"] > 0 == lora.time_lines["dequantisation"]
    assert qlora.step_s > lora.step_s


def test_full_is_slower_than_lora_where_arithmetic_and_not_the_host_is_what_a_step_waits_for() -> None:
    job = Job(model=NAMES[1], seq_len=2048)
    lora, full = (
        estimator.estimate(
            job.model_copy(update={"method": method}),
            Strategy(micro_batch=4, grad_accum=4),
            Rig(gpu="A100-SXM4-80GB"),
        )
        for method in ("lora", "full")
    )
    assert lora.step_s < full.step_s
    # a small model's step is launches of kernels, of which adapters need more
    small = Job(model=NAMES[0], seq_len=512, tokens_per_example=500)
    lora, full = (
        estimator.estimate(small.model_copy(update={"method": method}), Strategy(), Rig(gpu="H100-SXM-80GB"))
        for method in ("lora", "full")
    )
    assert lora.time_lines["host"] > 0.5 * lora.step_s
    assert lora.step_s > full.step_s


def offer(**more) -> Offer:
    seen = {"observed_at": date(2026, 10, 19), "source": "test"}
    return Offer(provider="nobody", usd_per_hour=2.0, rig=RIGS[2], **seen, **more)


OFFERS = [
    offer(),
    offer(billing_increment_s=3600, minimum_s=600),
    offer(term="interruptible", mtbi_hours=12),
    offer(term="prepaid-block", block_gpu_hours=(10, 24, 168, 720)),
    offer(term="reserved", reservation_hours=(24, 168, 8760)),
]


@settings(deadline=None, max_examples=40)
@given(few=st.integers(1, 20_000), factor=st.floats(1, 20), chosen=st.sampled_from(OFFERS))
def test_more_examples_never_cost_less_however_they_are_bought(few: int, factor: float, chosen: Offer) -> None:
    job = Job(model=NAMES[1], method="qlora", tokens_per_example=1500, epochs=3)
    less, more = (
        planner.plan(job.model_copy(update={"examples": n}), [chosen]).plans[0] for n in (few, int(few * factor))
    )
    assert less.usd <= more.usd * (1 + 1e-12)
    assert less.usd_low <= more.usd_low * (1 + 1e-12)
    assert less.usd_high <= more.usd_high * (1 + 1e-12)
    assert less.hours <= more.hours


def test_more_examples_never_cost_less_in_the_matrix_and_what_fits_stays() -> None:
    tables = [verbs.fit(NAMES[1], {"examples": n, "tokens_per_example": 1000}) for n in (100, 1000, 50_000)]
    for cells in zip(*(table.cells for table in tables), strict=True):
        assert len({(cell.rig, cell.method, cell.mark, cell.needs_gib) for cell in cells}) == 1
        costs = [cell.usd_per_run for cell in cells if cell.usd_per_run is not None]
        assert all(less <= more * (1 + 1e-12) for less, more in pairwise(costs))


@pytest.mark.parametrize("model", NAMES)
def test_no_method_fits_where_a_smaller_one_does_not(model: str) -> None:
    order = {"no": 0, "tight": 1, "yes": 2}
    table = verbs.fit(model, {"examples": 1000, "tokens_per_example": 1000})
    by_rig: dict[Rig, list[int]] = {}
    for cell in table.cells:  # method by method, qlora first and full AdamW last
        by_rig.setdefault(cell.rig, []).append(order[cell.mark])
    assert all(marks == sorted(marks, reverse=True) for marks in by_rig.values())
