"""Bills: arithmetic by hand, and what must hold for any price and any length of run."""

import math
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun import cost
from perrun.facts import models
from perrun.physics import billing, spot
from perrun.prices import snapshot
from perrun.terms import Job, Offer, Rig

JOB = Job(model="meta-llama/Llama-3.1-8B", method="qlora")
MODEL = models.get(JOB.model)


def offer(usd: float = 2.0, **more) -> Offer:
    values = {"provider": "nobody", "usd_per_hour": usd, "rig": Rig(gpu="H100-SXM-80GB"), "source": "test"}
    return Offer(**(values | {"observed_at": date(2026, 10, 19)} | more))


@pytest.mark.parametrize(
    ("seconds", "increment", "minimum", "expected"),
    [(30, 1, 60, 60), (61, 1, 60, 61), (61, 60, 0, 120), (3600, 3600, 0, 3600), (3601, 3600, 0, 7200), (0, 60, 0, 0)],
)
def test_billed_seconds(seconds, increment, minimum, expected):
    assert billing.billed_seconds(seconds, increment, minimum) == expected


def test_prepaid_blocks_of_seed_004_are_rounded_up():
    # 1x A100 for 12 h: two blocks of 10 GPU-hours, 8 left over less what start-up takes
    bought = offer(0.92, block_gpu_hours=10, term="prepaid-block")
    lines = {line.name: line for line in cost.cost_lines(12.0, JOB, MODEL, bought)}
    start = lines["start-up"].quantity
    assert lines["left in prepaid blocks"].quantity == pytest.approx(8.0 - start)
    assert cost.total(list(lines.values())) == pytest.approx(20 * 0.92)


def test_young_interval():
    # C = 36 s, one interruption in 50 h: sqrt(2 x 0.01 x 50) = 1 h
    assert spot.best_interval(0.01, spot.hazard_per_hour(50)) == pytest.approx(1.0)


def test_expected_overhead_at_the_young_interval():
    # T = 10 h, tau = 1 h, R = 0.25 h, lambda = 1/50: 10/50 x (0.5 + 0.25) + 10 x 0.01 / 1 = 0.25 h
    assert spot.expected_overhead_hours(10.0, 1 / 50, 0.01, 0.25) == pytest.approx(0.25)


def test_hazard_of_a_monthly_class():
    # 20 % interrupted within 730 h: -ln(0.8) / 730
    assert spot.hazard_of_monthly_share(0.2) == pytest.approx(0.22314 / 730, rel=1e-4)


def test_start_up_is_boot_image_install_and_weights():
    # lowcostgpu boots in 30 s; 8 GB image + 2 x 8.030 GB weights at 0.25 GB/s; 120 s of installing
    seconds = 30 + (8 + 2 * 8.030261248) / 0.25 + 120
    found = cost.startup_hours(MODEL, offer(provider="lowcostgpu"))
    assert found * 3600 == pytest.approx(seconds, rel=1e-6)


PRICES = st.floats(0.02, 300)
HOURS = st.floats(0.001, 2000)
TERMS = st.sampled_from(["on-demand", "interruptible", "reserved"])


@given(HOURS, PRICES, TERMS, st.sampled_from([1, 60, 3600]), st.sampled_from([0, 60, 3600]))
def test_the_bill_is_the_sum_of_its_lines(hours, price, term, increment, minimum):
    bought = offer(price, term=term, billing_increment_s=increment, minimum_s=minimum)
    lines = cost.cost_lines(hours, JOB, MODEL, bought)
    start, extra = cost.startup_hours(MODEL, bought), cost.overhead_hours(hours, JOB, MODEL, bought)
    at_once = cost.totals(hours, start, extra, price, increment, minimum)
    assert math.fsum(line.usd for line in lines) == pytest.approx(float(at_once), rel=1e-9)


@given(HOURS, PRICES, st.floats(1.0, 10.0), TERMS)
def test_more_price_never_lowers_cost(hours, price, factor, term):
    cheap, dear = (cost.total(cost.cost_lines(hours, JOB, MODEL, offer(p, term=term))) for p in (price, price * factor))
    assert dear >= cheap * (1 - 1e-12)


@given(HOURS, st.floats(1.0, 10.0), PRICES, TERMS)
def test_more_hours_never_lower_cost(hours, factor, price, term):
    short, long = (cost.total(cost.cost_lines(h, JOB, MODEL, offer(price, term=term))) for h in (hours, hours * factor))
    assert long >= short * (1 - 1e-9)


def test_every_shipped_offer_is_valid():
    found = snapshot.offers()
    assert len(found) > 450
    for shipped in found:
        assert Offer.model_validate(shipped.model_dump()) == shipped
        assert shipped.source
        per_gpu = shipped.usd_per_hour / shipped.rig.n_gpus
        assert snapshot.USD_PER_GPU_HOUR[0] <= per_gpu <= snapshot.USD_PER_GPU_HOUR[1]


def test_as_of_hides_what_was_not_known_yet():
    assert {o.provider for o in snapshot.offers(date(2026, 10, 20))} >= {"lowcostgpu"}
    assert "gpuwithcrypto" not in {o.provider for o in snapshot.offers(date(2026, 10, 20))}


def test_seed_prices_are_in_the_book():
    prices = {(o.provider, o.rig.gpu, o.rig.n_gpus, o.term): o.usd_per_hour for o in snapshot.offers()}
    assert prices["lowcostgpu", "H100-SXM-80GB", 1, "on-demand"] == 1.680
    assert prices["lowcostgpu", "A100-SXM4-80GB", 1, "interruptible"] == 0.234
    assert prices["gpuwithcrypto", "B200-180GB", 8, "on-demand"] == 36.88
    assert prices["massedcompute", "B200-180GB", 8, "on-demand"] == 43.46
