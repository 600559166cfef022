"""Bills: arithmetic by hand, and what must hold for any price and any length of run."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perrun import cost, overheads
from perrun.errors import InvalidInput
from perrun.facts import models
from perrun.physics import billing
from perrun.prices import tables
from perrun.terms import Job, Offer, Rig

JOB = Job(model="meta-llama/Llama-3.1-8B", method="qlora")
MODEL = models.get(JOB.model)
GB_OF_8B = 2 * 8.030261248  # parameters of Llama 3.1 8B (its card), two bytes each
BLOCKS = (10, 24, 168, 720)


def offer(usd: float = 2.0, n_gpus: int = 1, **more) -> Offer:
    values = {
        "provider": "nobody",
        "usd_per_hour": usd,
        "rig": Rig(gpu="H100-SXM-80GB", n_gpus=n_gpus),
        "source": "test",
        "observed_at": date(2026, 10, 19),
        "billing_increment_s": 1,
    }
    return Offer(**(values | more))


def bill(hours, bought, **more):
    return {line.name: line for line in cost.cost_lines(hours, JOB, MODEL, bought, **more)}


@pytest.mark.parametrize(
    ("seconds", "increment", "minimum", "expected"),
    [(30, 1, 60, 60), (61, 1, 60, 61), (61, 60, 0, 120), (3600, 3600, 0, 3600), (3601, 3600, 0, 7200), (0, 60, 0, 0)],
)
def test_billed_seconds(seconds, increment, minimum, expected):
    assert billing.billed_seconds(seconds, increment, minimum) == expected


def test_weekly_billing():
    # 1-Click Clusters are sold by the week: 30 h are 7 x 24 h
    assert billing.billed_seconds(30 * 3600, 7 * 86400, 0) == 168 * 3600


@pytest.mark.parametrize(
    ("gpu_hours", "bought"),
    [(0, 0), (0.1, 10), (10, 10), (10.5, 20), (21, 24), (25, 30), (35, 40), (168, 168), (169, 170)],
)
def test_blocks_of_seed_004_mix_to_the_least_left_over(gpu_hours, bought):
    # 169: 5 x 10 + 5 x 24 = 170 leaves less than 168 + 10
    assert billing.prepaid_gpu_hours(gpu_hours, BLOCKS) == bought


@given(st.floats(0, 20_000))
def test_blocks_cover_the_need_and_no_smaller_sum_does(need):
    total = billing.prepaid_gpu_hours(need, BLOCKS)
    shopping = billing.blocks_to_buy(need, BLOCKS)
    assert sum(size * count for size, count in shopping.items()) == total
    assert total >= need - 1e-5
    if total > 88:  # from 88 on every even number is a sum of 10s and 24s: (5 - 1) x (12 - 1) x 2
        assert total - need < 2 + 1e-5


def test_capacity_blocks_are_days_up_to_two_weeks_and_then_weeks():
    hours = np.array([1.0, 24.0, 25.0, 14 * 24, 14 * 24 + 1, 182 * 24])
    assert billing.reserved_hours(hours, billing.CAPACITY_BLOCK_HOURS).tolist() == [24, 24, 48, 336, 504, 4368]
    assert np.isnan(billing.reserved_hours(182 * 24 + 1.0, billing.CAPACITY_BLOCK_HOURS))


def test_start_up_is_boot_image_install_download_and_load():
    # 30 s of boot; 8 GB of image and the weights at 0.25 GB/s; 120 s of installing; the weights again at 0.75 GB/s
    seconds = 30 + (8 + GB_OF_8B) / 0.25 + 120 + GB_OF_8B / 0.75
    assert bill(1.0, offer(boot_s=30))["start-up"].quantity * 3600 == pytest.approx(seconds, rel=1e-6)


def test_prepaid_blocks_are_paid_whole():
    # 12 h of training and the start-up on one A100 at $0.92: 20 GPU-hours in two blocks of 10
    bought = offer(0.92, block_gpu_hours=BLOCKS, term="prepaid-block", billing_increment_s=60)
    lines = bill(12.0, bought)
    assert sum(line.usd for line in lines.values()) == pytest.approx(20 * 0.92)
    assert cost.what_to_buy(12.0, JOB, MODEL, bought) == {10: 2}
    # 8x B200 for 20 h: boot 300 s, 24.06 GB at 0.25 GB/s, 16.06 GB at 0.75 GB/s, 120 s are 538 s: 20 h 9 min on the
    # bill, 161.2 GPU-hours; 162 = 9 x 10 + 3 x 24 is the next sum of blocks
    node = offer(36.88, n_gpus=8, block_gpu_hours=BLOCKS, term="prepaid-block", billing_increment_s=60)
    assert cost.what_to_buy(20.0, JOB, MODEL, node) == {10: 9, 24: 3}


def test_a_node_is_billed_whole():
    # 2 GPUs wanted, 8 sold at $16: three quarters of the training hours are idle GPUs
    lines = bill(4.0, offer(16.0, n_gpus=8), used_gpus=2)
    assert lines["training"].usd == pytest.approx(4 * 16 / 4)
    assert lines["idle GPUs of the node"].usd == pytest.approx(4 * 16 * 3 / 4)
    whole = bill(4.0, offer(16.0, n_gpus=8))
    assert sum(line.usd for line in whole.values()) == pytest.approx(sum(line.usd for line in lines.values()))


def test_the_smallest_node_that_holds_the_gpus():
    sold = [offer(16.0, n_gpus=8), offer(8.4, n_gpus=4), offer(2.0), offer(9.0, n_gpus=4)]
    assert [node.usd_per_hour for node in cost.smallest_node(sold, 2)] == [8.4]
    assert cost.smallest_node(sold, 9) == []


def test_storage_of_a_volume():
    # $0.08/GB/month for 50 GB of scratch, the weights and two checkpoints of the adapters, while the machine runs
    lines = bill(730.0, offer(storage_usd_per_gb_month=0.08))
    adapters = 41_943_040  # rank 16 on all linear layers of Llama 3.1 8B: peft prints this number
    gb = 50 + GB_OF_8B + 2 * 12 * adapters / 1e9
    assert lines["storage"].usd == pytest.approx(0.08 * gb * (730 + lines["start-up"].quantity) / 730, rel=1e-3)


def test_a_disk_that_is_kept_stopped():
    # runs for no money at all, then 30 days at $0.20/GB-month; a month of the bill has 730 h
    lines = bill(1.0, offer(stopped_storage_usd_per_gb_month=0.20), keep_days=30)
    gb = 50 + GB_OF_8B + 2 * 12 * 41_943_040 / 1e9
    assert lines["stopped disk"].usd == pytest.approx(0.20 * gb * 720 / 730)
    assert "stopped disk" not in bill(1.0, offer(stopped_storage_usd_per_gb_month=0.20))


def test_a_run_that_waits_for_its_next_machine_pays_for_the_disk():
    # interrupted every 10 h, the next machine comes after a minute (priors.csv): the disk bills meanwhile
    waits = offer(term="interruptible", mtbi_hours=10, stopped_storage_usd_per_gb_month=0.20)
    stops = overheads.interruption(100.0, cost.moves(JOB, MODEL), [waits])
    line = bill(100.0, waits)["stopped disk"]
    gb = 50 + GB_OF_8B + 2 * 12 * 41_943_040 / 1e9
    assert stops.expected[0] > 10
    assert line.quantity == pytest.approx(gb * stops.expected[0] * 60 / 3600 / 730)


def test_traffic_in_is_billed_where_the_provider_bills_it():
    # Vast.ai hosts: both ways by the GB; the weights and an image of 8 GB come in
    lines = bill(1.0, offer(ingress_usd_per_gb=0.02))
    assert lines["ingress"].usd == pytest.approx(0.02 * (GB_OF_8B + 8), rel=1e-6)


def test_the_queue_is_never_billed_and_the_boot_not_where_the_meter_starts_behind_it():
    boots, ready = offer(boot_s=300), offer(boot_s=300, boot_billed=False)
    parts = overheads.startup_parts(cost.moves(JOB, MODEL), [boots])
    assert parts["queue"][0] == 60
    hours = [bill(1.0, one)["start-up"].quantity for one in (boots, ready)]
    assert hours[0] - hours[1] == pytest.approx(300 / 3600)
    assert hours[0] == pytest.approx(sum(s[0] for name, s in parts.items() if name != "queue") / 3600)


@pytest.mark.parametrize("work", [5.0, 200.0])
def test_at_the_break_even_hazard_an_interruptible_run_costs_what_it_costs_on_demand(work):
    spot = offer(1.0, term="interruptible")
    gb = cost.moves(JOB, MODEL)
    (every,) = overheads.break_even_mtbi(work, gb, [spot], {overheads.machine(spot): 1.5})
    stops = overheads.interruption(work, gb, [spot.model_copy(update={"mtbi_hours": float(every)})])
    hours = work + stops.saving_hours[0] + stops.lost_hours[0]
    assert hours * 1.0 == pytest.approx(work * 1.5, rel=1e-4)
    assert np.isnan(overheads.break_even_mtbi(work, gb, [spot], {})).all()
    assert np.isnan(overheads.break_even_mtbi(work, gb, [offer()], {overheads.machine(offer()): 1.5})).all()


def test_egress_of_a_full_model():
    full = Job(model=JOB.model, method="full")
    lines = {line.name: line for line in cost.cost_lines(1.0, full, MODEL, offer(egress_usd_per_gb=0.09))}
    assert lines["egress"].usd == pytest.approx(0.09 * GB_OF_8B)


def test_an_unknown_billing_step_widens_the_range():
    unknown = offer(3.6, billing_increment_s=None, boot_s=30)
    low, value, high = (
        sum(x.usd for x in cost.cost_lines(1.0, JOB, MODEL, unknown, c)) for c in ("low", "value", "high")
    )
    assert low < value < high
    assert high >= 2 * 3.6  # at the dear end by whole hours: an hour and the start-up are two


def test_own_mean_time_between_interruptions_goes_first():
    own = offer(term="interruptible", mtbi_hours=50, interruption_class="<5%")
    assert overheads.hazards([own]).tolist() == [1 / 50]
    assert overheads.hazards([own], "high").tolist() == [1 / 50]


def test_every_node_can_be_interrupted():
    two = offer(n_gpus=16, term="interruptible", mtbi_hours=50)
    two = two.model_copy(update={"rig": Rig(gpu="H100-SXM-80GB", n_gpus=16, n_nodes=2)})
    assert overheads.hazards([two]).tolist() == [2 / 50]


@pytest.mark.parametrize(
    ("name", "column", "share", "hours"),
    [("<5%", "high", 0.05, 24), ("<5%", "low", 0.01, 730), ("5-10%", "value", 0.075, 168), (">20%", "high", 0.60, 12)],
)
def test_interruption_classes_state_their_arithmetic(name, column, share, hours):
    expected = -hours / np.log(1 - share)
    assert getattr(tables.mtbi_hours(name), column) == pytest.approx(expected, rel=0.01)


def test_a_run_longer_than_any_reservation():
    short = offer(term="reserved", reservation_hours=(24.0, 48.0))
    assert sum(line.usd for line in cost.cost_lines(30.0, JOB, MODEL, short)) == pytest.approx(48 * 2.0)
    with pytest.raises(InvalidInput, match="at most 48 h"):
        cost.cost_lines(50.0, JOB, MODEL, short)


PRICES = st.floats(0.02, 300)
HOURS = st.floats(0.001, 2000)
OFFERS = st.builds(
    offer,
    PRICES,
    n_gpus=st.sampled_from([1, 2, 8]),
    term=st.sampled_from(["on-demand", "interruptible", "prepaid-block"]),
    billing_increment_s=st.sampled_from([None, 1, 60, 3600]),
    minimum_s=st.sampled_from([0, 60, 3600]),
    storage_usd_per_gb_month=st.sampled_from([None, 0.08, 0.2]),
    egress_usd_per_gb=st.sampled_from([None, 0.0, 0.09]),
    stopped_storage_usd_per_gb_month=st.sampled_from([None, 0.2]),
    ingress_usd_per_gb=st.sampled_from([None, 0.02]),
    boot_billed=st.booleans(),
    mtbi_hours=st.sampled_from([None, 5.0, 500.0]),
    block_gpu_hours=st.sampled_from([(), BLOCKS]),
)
CASES = st.sampled_from(["low", "value", "high"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HOURS, OFFERS), min_size=1, max_size=12), CASES)
def test_the_bill_is_exactly_the_sum_of_its_lines(pairs, case):
    hours, offers = [h for h, _ in pairs], [o for _, o in pairs]
    at_once = cost.totals(hours, JOB, MODEL, offers, case)
    for index, (work, bought) in enumerate(pairs):
        one_by_one = sum(line.usd for line in cost.cost_lines(work, JOB, MODEL, bought, case))
        assert one_by_one == at_once[index]


@given(HOURS, OFFERS, st.floats(1.0, 10.0))
def test_more_price_never_lowers_cost(hours, cheap, factor):
    dear = cheap.model_copy(update={"usd_per_hour": cheap.usd_per_hour * factor})
    low, high = cost.totals(hours, JOB, MODEL, [cheap, dear])
    assert high >= low * (1 - 1e-12)


@given(HOURS, st.floats(1.0, 10.0), OFFERS)
def test_more_hours_never_lower_cost(hours, factor, bought):
    short, long = cost.totals([hours, hours * factor], JOB, MODEL, [bought, bought])
    assert long >= short * (1 - 1e-9)


@given(HOURS, OFFERS)
def test_the_cheap_end_is_cheaper_than_the_dear_end(hours, bought):
    low, value, high = (cost.totals(hours, JOB, MODEL, [bought], case)[0] for case in ("low", "value", "high"))
    assert low <= value * (1 + 1e-9)
    assert value <= high * (1 + 1e-9)
