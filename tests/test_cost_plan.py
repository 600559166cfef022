"""What `perrun plan` says of a bill: whole nodes, balances, blocks, interruptions, and how old its prices are."""

import json
from datetime import date

import pytest

from perrun import verbs
from perrun.errors import InvalidInput
from perrun.prices import snapshot
from perrun.prices.offers import offer_of
from perrun.prices.quote import Quote
from perrun.surfaces import cli

MODEL = "meta-llama/Llama-3.1-8B"
JOB = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}
WORDS = ("plan", MODEL, "--method", "qlora", "--examples", "5000", "--tokens", "1500", "--epochs", "3")
HEADER = "provider,gpu,n_gpus,usd_per_hour,observed_at,term,billing_increment_s,instance,mtbi_hours"


@pytest.fixture(autouse=True)
def folder(own_folder):
    return own_folder


@pytest.fixture
def priced(folder):
    """A plan through prices of one's own."""

    def plan(*rows, **wish):
        file = folder / "mine.csv"
        file.write_text("\n".join((HEADER, *rows)) + "\n")
        return verbs.plan(MODEL, JOB, prices=file, **wish)

    return plan


def lines(one):
    return {line.name: line.usd for line in one.cost_lines}


def test_two_gpus_wanted_and_eight_sold_is_priced_and_said(priced):
    answer = priced(
        "acme,H100 SXM,8,16,2026-11-20,on-demand,1,,", "acme,H100 SXM,1,2.4,2026-11-20,on-demand,1,,", n_gpus=2
    )
    (one,) = answer.plans
    assert (one.offer.rig.n_gpus, one.used_gpus) == (8, 2)
    assert one.strategy.micro_batch * one.strategy.grad_accum * 2 == 16  # the job runs on two
    assert lines(one)["training"] == pytest.approx(one.hours * 16 * 2 / 8)
    assert lines(one)["idle GPUs of the node"] == pytest.approx(one.hours * 16 * 6 / 8)
    assert "2 of 8 GPUs are used, the node is sold and billed whole" in one.risk
    assert "2 of 8x H100-SXM-80GB at acme" in answer.verdict
    two = priced("acme,H100 SXM,2,4.8,2026-11-20,on-demand,1,,").plans[0]
    assert two.hours == pytest.approx(one.hours)
    with pytest.raises(InvalidInput, match="no offer holds 16 GPUs; expected at most 8"):
        priced("acme,H100 SXM,8,16,2026-11-20,on-demand,1,,", n_gpus=16)


def test_the_command_shows_the_node_and_its_whole_bill(capsys):
    assert cli.run([*WORDS, "--n-gpus", "2", "--gpu", "h100 sxm", "--provider", "lowcostgpu"]) == 0
    out = capsys.readouterr().out
    assert "2 of 8x H100-SXM-80GB  lowcostgpu" in out
    assert "First row: 2 of 8 GPUs are used, the node is sold and billed whole" in out


def test_blocks_of_seed_004_are_bought_and_their_rest_is_said():
    (one,) = verbs.plan(MODEL, JOB, providers=("gpuwithcrypto",), gpus=("L40S-48GB",), terms=("prepaid-block",)).plans
    assert one.offer.block_gpu_hours == (10, 24, 168, 720)
    assert one.usd == pytest.approx(10 * 0.82)  # one block of ten hours at $0.82
    assert "buy 1 x 10 GPU-hours ahead" in one.risk
    assert "needs a balance of $25.00 to start, $16.80 more than this run" in one.risk


def test_a_balance_of_some_hours_follows_the_price():
    # RunPod: one hour of credit to start
    quote = Quote("runpod-secure", "L4-24GB", 2, 0.86, date(2026, 11, 20), "test")
    assert offer_of(quote).deposit_usd == 0.86


def test_the_flat_discount_of_the_seeds_is_a_term_of_that_provider():
    """Pages 000 and 001: -50 % flat, so $0.234 and $0.840; no hazard is published, so the range is the widest."""
    prices = {(o.rig.gpu, o.rig.n_gpus, o.term): o for o in snapshot.offers() if o.provider == "lowcostgpu"}
    for (gpu, n_gpus, term), offer in prices.items():
        if term == "interruptible":
            assert offer.usd_per_hour == pytest.approx(0.5 * prices[gpu, n_gpus, "on-demand"].usd_per_hour)
            assert offer.interruption_class is None
    one = verbs.plan(MODEL, JOB, providers=("lowcostgpu",), terms=("interruptible",)).plans[0]
    assert "on demand is cheaper if interrupted oftener than every" in one.risk
    assert one.break_even_mtbi_hours < 1


def test_ones_own_mean_time_between_interruptions_goes_first():
    wish = {"providers": ("lowcostgpu",), "terms": ("interruptible",), "gpus": ("H100-SXM-80GB",), "max_gpus": 1}
    rare, often = (verbs.plan(MODEL, JOB, mtbi_hours=hours, **wish).plans[0] for hours in (1000.0, 0.3))
    assert "interrupted about every 1,000 h" in rare.risk
    assert lines(often)["lost work and restarts"] > 10 * lines(rare)["lost work and restarts"]
    on_demand = verbs.plan(MODEL, JOB, **{**wish, "terms": ("on-demand",)}).plans[0]
    assert lines(on_demand)["training"] < sum(
        lines(often)[name] for name in ("training", "saving checkpoints", "lost work and restarts")
    )  # oftener than the break-even: on demand is cheaper
    assert often.break_even_mtbi_hours > 0.3


def test_a_disk_kept_for_a_month_is_on_the_bill():
    wish = {"providers": ("runpod-secure",), "gpus": ("L40S-48GB",)}
    without, kept = (verbs.plan(MODEL, JOB, keep_days=days, **wish).plans[0] for days in (0.0, 30.0))
    (line,) = (line for line in kept.cost_lines if line.name == "stopped disk")
    assert line.usd == pytest.approx(0.20 * line.quantity)  # double the price of a running pod's volume
    assert kept.usd == pytest.approx(without.usd + line.usd)


def test_the_parts_of_the_start_up_are_said_and_their_sum_is_billed_without_the_queue():
    one = verbs.plan(MODEL, JOB, providers=("lowcostgpu",), terms=("on-demand",)).plans[0]
    (line,) = (line for line in one.cost_lines if line.name == "start-up")
    assert one.startup_s["boot"] == 30  # about 30 s to provision, page 000
    assert line.quantity * 3600 == pytest.approx(sum(one.startup_s.values()) - one.startup_s["queue"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (WORDS, "all over a week: perrun prices refresh"),
        (("fit", MODEL, "--rig", "1x H100 SXM"), "all over a week: perrun prices refresh"),
        (("compare", "A100-SXM4-80GB", "H100-SXM-80GB", MODEL), "all over a week: perrun prices refresh"),
    ],
)
def test_every_answer_with_prices_says_how_old_they_are(words, said, capsys):
    assert cli.run([*words]) == 0
    assert said in capsys.readouterr().out
    assert cli.run([*words, "--json"]) == 0
    assert said in json.loads(capsys.readouterr().out)["prices_age"]


def test_prices_of_this_week_are_not_called_old(priced):
    answer = priced(f"acme,L4,1,0.4,{date.today()},on-demand,1,,")
    assert answer.prices_age == "prices 0 days old"
    assert cli.run([*WORDS, "--as-of", "2026-10-20"]) == 0


def test_the_age_counts_from_the_day_that_was_asked_for():
    answer = verbs.plan(MODEL, JOB, providers=("lowcostgpu",), as_of=date(2026, 10, 21))
    assert answer.prices_age == "prices 2 days old"
