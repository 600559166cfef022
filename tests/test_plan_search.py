"""What must hold of every plan: arrays find what trying all strategies one by one finds; prices act as they should."""

from datetime import date

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from perrun import estimator, planner, search
from perrun.errors import NothingFits
from perrun.facts import models
from perrun.strategies import strategies
from perrun.terms import Job, Offer, Rig
from perrun.units import GIB

NAMES = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-27b-pt")
RIGS = (
    Rig(gpu="RTX-4090-24GB"),
    Rig(gpu="L40S-48GB", n_gpus=2),
    Rig(gpu="A100-SXM4-80GB"),
    Rig(gpu="H100-SXM-80GB", n_gpus=8),
    Rig(gpu="H100-SXM-80GB", n_gpus=16, n_nodes=2),
)
MIN_FIT = 0.9
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

jobs = st.builds(
    Job,
    model=st.sampled_from(NAMES),
    method=st.sampled_from(["full", "lora", "qlora"]),
    objective=st.sampled_from(["sft", "dpo"]),
    optimizer=st.sampled_from(["adamw", "paged-adamw-8bit"]),
    lora_rank=st.sampled_from([8, 64]),
    tokens_per_example=st.integers(100, 4000),
    seq_len=st.sampled_from([512, 4096, 16384]),
    packing=st.booleans(),
    global_batch=st.sampled_from([8, 16, 48]),
)
fixes = st.fixed_dictionaries(
    {},
    optional={
        "framework": st.sampled_from(["axolotl", "unsloth", "torchtune"]),
        "checkpointing": st.sampled_from(["none", "full", "selective"]),
        "attention": st.sampled_from(["eager", "flash2"]),
        "micro_batch": st.sampled_from([1, 2, 4]),
    },
)


def one_by_one(job, model, rig, fixed):
    """(tokens/s, probability, device bytes) of every strategy, each estimated alone."""
    found = [
        estimator.figures(estimator.ask(job, strategy, rig, model)) for strategy in strategies(job, rig.n_gpus, fixed)
    ]
    return [np.array([float(getattr(f, name)) for f in found]) for name in ("tokens_per_s", "fits", "device")]


@SLOW
@given(jobs, fixes, st.sampled_from(RIGS))
def test_the_vectorised_search_finds_what_brute_force_finds(job, fixed, rig):
    model = models.get(job.model)
    (best,), refused = search.best(job, model, [rig], fixed, MIN_FIT)
    assert not refused
    speed, fits, device = one_by_one(job, model, rig, fixed)
    if not speed.size:
        assert best.strategy is None
        assert np.isnan(best.needs_gib)
    elif not (fits >= MIN_FIT).any():
        assert best.strategy is None
        assert best.needs_gib == pytest.approx(device.min() / GIB, rel=1e-9)
    else:
        fastest = speed[fits >= MIN_FIT].max()
        # within 1 % of the fastest the one that surely fits is taken: speed is not known better
        assert 0.99 * fastest * (1 - 1e-9) <= best.tokens_per_s <= fastest * (1 + 1e-9)
        alone = estimator.figures(estimator.ask(job, best.strategy, rig, model))
        assert float(alone.tokens_per_s) == pytest.approx(best.tokens_per_s, rel=1e-9)
        assert float(alone.fits) == pytest.approx(best.fits, abs=1e-9)
        assert float(alone.device) / GIB == pytest.approx(best.needs_gib, rel=1e-9)


@SLOW
@given(jobs)
def test_rigs_searched_together_are_found_as_each_alone(job):
    model = models.get(job.model)
    together, _ = search.best(job, model, list(RIGS), {}, MIN_FIT)
    for best in together:
        (alone,), _ = search.best(job, model, [best.rig], {}, MIN_FIT)
        assert alone.strategy == best.strategy
        assert alone.tokens_per_s == pytest.approx(best.tokens_per_s, rel=1e-12)


@SLOW
@given(jobs, fixes, st.sampled_from(RIGS))
def test_the_global_batch_is_never_changed(job, fixed, rig):
    found, _ = search.best(job, models.get(job.model), [rig], fixed, MIN_FIT)
    for best in found:
        if best.strategy is not None:
            assert best.strategy.micro_batch * best.strategy.grad_accum * rig.n_gpus == job.global_batch
            assert all(getattr(best.strategy, name) == value for name, value in fixed.items())


def offer(rig: Rig, usd: float, **more) -> Offer:
    seen = {"observed_at": date(2026, 10, 19), "source": "test"}
    return Offer(provider="nobody", usd_per_hour=usd, rig=rig, **seen, **more)


TERMS = (
    {},
    {"billing_increment_s": 3600, "minimum_s": 600},
    {"term": "interruptible", "mtbi_hours": 12},
    {"term": "prepaid-block", "block_gpu_hours": (10, 24, 168, 720)},
    {"term": "reserved", "reservation_hours": (24, 168, 8760)},
)
RUN = Job(model=NAMES[0], method="qlora", examples=5000, tokens_per_example=1500, epochs=3)


@SLOW
@given(st.floats(0.05, 100), st.floats(1, 10), st.integers(1, 10**6), st.sampled_from(TERMS), st.sampled_from(RIGS[:4]))
def test_a_higher_price_never_lowers_the_cost(usd, factor, examples, terms, rig):
    job = RUN.model_copy(update={"examples": examples})
    try:
        low, high = (planner.plan(job, [offer(rig, price, **terms)]).plans[0] for price in (usd, usd * factor))
    except NothingFits:  # longer than what can be reserved
        reject()
    assert high.usd >= low.usd
    assert high.usd_low >= low.usd_low
    assert high.usd_high >= low.usd_high
    assert high.hours == low.hours


@SLOW
@given(st.floats(0.05, 100), st.floats(1.01, 10), st.sampled_from(TERMS))
def test_a_dearer_offer_of_the_same_rig_is_never_ranked_first(usd, factor, terms):
    cheap, dear = offer(RIGS[2], usd, **terms), offer(RIGS[2], usd * factor, **terms)
    found = planner.plan(RUN, [dear, cheap])
    assert [one.offer for one in found.plans] == [cheap, dear]


@SLOW
@given(jobs, st.integers(1, 10**6))
def test_a_plan_is_the_sum_of_its_lines(job, examples):
    job = job.model_copy(update={"examples": examples})
    try:
        answer = planner.plan(job, [offer(rig, 2.0 * rig.n_gpus) for rig in RIGS])
    except NothingFits:
        reject()
    for one in answer.plans:
        found = one.estimate
        assert one.usd == pytest.approx(sum(line.usd for line in one.cost_lines), rel=1e-9)
        assert found.memory.device_gib == pytest.approx(sum(found.memory.lines.values()), rel=1e-9)
        assert found.step_s == pytest.approx(sum(found.time_lines.values()), rel=1e-9)
        assert 0 < one.usd_low <= one.usd <= one.usd_high
    ranked = [one.usd for one in answer.plans]
    assert ranked == sorted(ranked)
