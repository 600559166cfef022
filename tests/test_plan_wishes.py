"""Budgets, deadlines, what an hour is worth, several runs, clusters, the front, and the nearest misses."""

import re
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perrun import planner, verbs
from perrun.errors import InvalidInput, NothingFits
from perrun.planner.market import clusters, front
from perrun.surfaces import cli
from perrun.terms import Job, Offer, Rig

LLAMA = "meta-llama/Llama-3.1-8B"
JOB = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}


def offer(gpu: str, usd: float, n: int = 1, **more) -> Offer:
    rig = Rig(gpu=gpu, n_gpus=n)
    day = date(2026, 11, 30)
    return Offer(provider="shop", usd_per_hour=usd, rig=rig, observed_at=day, source="test", **more)


def plan(offers: list[Offer], job: dict | None = None, **wish):
    asked, _ = verbs.job(LLAMA, job or JOB)
    return planner.plan(asked, offers, planner.Wish(**wish))


A100, H100 = offer("A100-SXM4-80GB", 1.0), offer("H100-SXM-80GB", 4.0)


def test_an_hour_that_is_worth_enough_turns_the_ranking() -> None:
    first, second = plan([A100, H100]).plans
    assert first.offer == A100
    flip = (second.usd - first.usd) / (first.hours - second.hours)  # dollars that an hour must be worth
    assert plan([A100, H100], hour_usd=0.9 * flip).plans[0].offer == A100
    turned = plan([A100, H100], hour_usd=1.1 * flip)
    assert turned.plans[0].offer == H100
    assert turned.plans[0].usd_with_waiting == pytest.approx(second.usd + 1.1 * flip * second.hours)
    assert turned.verdict.startswith("Best with an hour of waiting at $")


def test_runs_cost_their_number_and_days_follow_from_both_pace_and_hours() -> None:
    one = plan([A100]).plans[0]
    found = plan([A100], runs=9, per_day=3).experiments
    assert found is not None
    assert (found.runs, found.usd, found.hours) == (9, pytest.approx(9 * one.usd), pytest.approx(9 * one.hours))
    assert found.days == 3
    slow = plan([A100], runs=9, per_day=1000).experiments
    assert slow is not None
    assert slow.days == pytest.approx(max(9 * one.hours / 24, 1))
    assert plan([A100]).experiments is None


def test_the_budget_is_for_all_runs() -> None:
    one = plan([A100]).plans[0]
    assert plan([A100], budget_usd=3.1 * one.usd, runs=3).plans
    with pytest.raises(NothingFits, match="no plan under"):
        plan([A100], budget_usd=2.9 * one.usd, runs=3)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=40))
def test_the_front_is_what_no_other_beats(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=float)
    beaten = [any((o <= r).all() and (o < r).any() for o in table) for r in table]
    assert front(*table.T).tolist() == [not b for b in beaten]


def test_the_front_of_plans_falls_in_hours_as_it_rises_in_dollars() -> None:
    dear_and_slow = offer("A100-SXM4-80GB", 3.0)
    found = plan([A100, H100, dear_and_slow], front=True).plans
    assert [one.offer for one in found] == [A100, H100]


def test_risk_is_of_not_fitting_and_of_interruption() -> None:
    spot = offer("A100-SXM4-80GB", 0.4, term="interruptible", mtbi_hours=10.0)
    calm, other = sorted(plan([A100, spot]).plans, key=lambda one: one.offer.term, reverse=True)
    assert calm.risk_probability == pytest.approx(1 - calm.estimate.fits_probability, abs=1e-6)
    expected = 1 - other.estimate.fits_probability * np.exp(-other.hours / 10.0)
    assert other.risk_probability == pytest.approx(expected, abs=1e-3)


def test_clusters_are_whole_nodes_at_their_price() -> None:
    node = offer("H100-SXM-80GB", 20.0, 8)
    spot, small = offer("H100-SXM-80GB", 9.0, 8, term="interruptible"), offer("H100-SXM-80GB", 10.0, 4)
    made = clusters([node, spot, small], 32)
    assert [(o.rig.n_gpus, o.rig.n_nodes, o.usd_per_hour) for o in made] == [(16, 2, 40.0), (32, 4, 80.0)]
    assert all("nodes" in o.note for o in made)


def test_what_no_machine_holds_is_planned_on_a_cluster_or_with_offload() -> None:
    node = offer("A100-SXM4-40GB", 10.0, 8)
    job, _ = verbs.job("meta-llama/Llama-3.1-70B", {"method": "full", "seq_len": 2048, "global_batch": 64})
    found = planner.plan(job, [node])
    ways = {(one.offer.rig.n_nodes > 1, one.strategy.offload) for one in found.plans}
    assert ways <= {(True, "none"), (False, "both")}
    assert ways
    assert any("70B" in r.reason or "needs" in r.reason for r in found.rejected)


def test_offload_needs_the_ram_that_it_fills() -> None:
    # LoRA of 70.55B x 2 bytes: 131.4 GiB of weights go to the RAM of a node of 4 cards with 22.5 GiB each
    job, _ = verbs.job("meta-llama/Llama-3.1-70B", {"method": "lora", "examples": 100})
    enough, little = offer("L4-24GB", 4.0, 4, ram_gib=400.0), offer("L4-24GB", 3.0, 4, ram_gib=128.0)
    found = planner.plan(job, [enough, little])
    assert [one.offer for one in found.plans] == [enough]
    assert found.plans[0].strategy.offload == "both"
    assert found.plans[0].estimate.host_ram_gib > 131.4
    assert planner.rig_said(found.plans[0]) == "4x L4-24GB, offloaded"
    assert any("host memory" in line for line in found.assumptions)
    with pytest.raises(NothingFits, match="no rig on offer holds lora"):
        planner.plan(job, [little])


def test_the_nearest_miss_says_how_many_tokens_the_budget_allows() -> None:
    whole = plan([A100]).plans[0]
    with pytest.raises(NothingFits) as caught:
        plan([A100], budget_usd=whole.usd / 2)
    said = re.search(
        r"no plan under \$([\d.]+); cheapest \$([\d.]+); under \$[\d.]+ needs <= ([\d.]+)M tokens", str(caught.value)
    )
    assert said
    assert float(said[2]) == pytest.approx(whole.usd, abs=0.006)
    asked = Job(model=LLAMA, **JOB)
    allowed = float(said[3]) * 1e6
    assert 0 < allowed < asked.tokens / 2  # start-up is paid whatever the length
    fewer = {**JOB, "examples": int(0.97 * allowed / 1500 / 3)}
    assert plan([A100], fewer, budget_usd=whole.usd / 2).plans


def test_limits_that_only_together_are_too_much() -> None:
    slow, fast = plan([A100, H100]).plans
    with pytest.raises(NothingFits, match="within the time the cheapest is"):
        plan([A100, H100], budget_usd=(slow.usd + fast.usd) / 2, deadline_h=(slow.hours + fast.hours) / 2)


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"n_gpus": 4, "max_gpus": 2}, "contradict"),
        ({"sort": "hours", "hour_usd": 5.0}, "changes nothing"),
        ({"per_day": 0.0, "runs": 2}, "0 runs a day"),
        ({"per_day": 3.0}, "3 runs a day of one run"),
        ({"mtbi_hours": 5.0, "terms": ("on-demand",)}, "--mtbi and --term on-demand contradict"),
        ({"hour_usd": -1.0}, "worth"),
        ({"sort": "price"}, "sorted by 'price'"),
    ],
)
def test_wishes_that_contradict_are_named(wish: dict, named: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(named)):
        plan([A100], **wish)


@settings(deadline=None, max_examples=25)
@given(share=st.floats(0.05, 0.95), epochs=st.sampled_from([0.5, 1, 2, 3]))
def test_more_tokens_never_cost_less(share: float, epochs: float) -> None:
    few = {**JOB, "examples": max(int(5000 * share), 1), "epochs": epochs}
    many = {**JOB, "epochs": epochs}
    for less, more in zip(plan([A100, H100], few).plans, plan([A100, H100], many).plans, strict=True):
        assert less.usd <= more.usd
        assert less.hours <= more.hours


def test_memory_of_qlora_is_below_lora_is_below_full_on_every_rig() -> None:
    rigs = [offer(gpu, 1.0 * n, n) for gpu in ("H100-SXM-80GB", "H200-SXM-141GB") for n in (1, 8)]
    fixed = {"micro_batch": 1, "checkpointing": "full", "fused_ce": False}
    needs = {}
    for method in ("qlora", "lora", "full"):
        answer = plan(rigs, {**JOB, "method": method}, fixed=fixed, min_fit=0.0)
        needs[method] = {one.offer.rig: one.estimate.memory.allocated_gib for one in answer.plans}
    for rig in needs["full"]:
        assert needs["qlora"][rig] <= needs["lora"][rig] <= needs["full"][rig]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("plan --rules flops-6n-0.3 --gpu h100 --limit 3", "--rules and --gpu, --limit contradict"),
        ("plan --rules flops-6n-0.3 --micro-batch 2", "--rules and --micro-batch contradict"),
        ("plan --vary rank=8,16 --alternatives --pareto", "--vary and --alternatives, --pareto contradict"),
        ("fit --rules bytes-per-parameter --rig L40S", "--rules and --rig contradict"),
        ("plan --n-gpus 8 --max-gpus 4", "--n-gpus 8 and --max-gpus 4 contradict"),
        ("plan --json --csv", "--json and --csv at once"),
    ],
)
def test_flags_that_contradict_are_named(capsys: pytest.CaptureFixture[str], flags: str, named: str) -> None:
    command, *rest = flags.split()
    assert cli.run([command, LLAMA, *rest]) == 2
    told = capsys.readouterr()
    assert named in told.err + told.out
