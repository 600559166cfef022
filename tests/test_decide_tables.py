"""Tables of jobs, decisions and methods, and mistakes in what is compared."""

import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perrun import verbs
from perrun.errors import InvalidInput
from perrun.surfaces import cli
from perrun.terms import Job

LLAMA = "meta-llama/Llama-3.1-8B"
A100, H100 = "A100-SXM4-80GB", "H100-SXM-80GB"
JOB = Job(model=LLAMA)


def test_the_five_jobs_at_the_seeds_prices_favour_the_a100():
    found = verbs.jobs(price_a=0.468, price_b=1.680)
    assert len(found.jobs) == 5
    for row in found.jobs:
        assert row.compared is not None
        assert row.compared.price_ratio == pytest.approx(1.680 / 0.468)
        assert row.compared.usd_a < row.compared.usd_b  # as every row of the pages' own table
    assert [row.compared.b.precision for row in found.jobs if row.compared] == [*["bf16-true"] * 3, "fp8", "bf16-true"]


@given(st.floats(0.1, 10), st.floats(0.1, 40))
@hypothesis_settings(deadline=None, max_examples=5)
def test_table_reason_and_sign_of_every_decision_agree(price_a, price_b):
    found = verbs.jobs(price_a=price_a, price_b=price_b)
    for row in found.decisions:
        assert row.rent == row.options[0].name
        assert [one.usd for one in row.options] == sorted(one.usd for one in row.options)
        fastest = min(row.options, key=lambda one: one.hours)
        assert ("also the fastest" in row.why) == (fastest is row.options[0] and len(row.options) > 1)
        for one in row.options[1:2]:
            more = one.usd - row.options[0].usd
            assert f"{one.name} is " in row.why
            assert f"${more:,.2f} more" in row.why or more < 0.01
        for one in row.rejected:
            assert one.rig.gpu in row.why


def test_settings_of_the_rows_are_not_for_all_of_them():
    with pytest.raises(InvalidInput, match="each row has its own"):
        verbs.jobs(given={"method": "lora"})


def test_more_data_costs_more_in_every_row():
    small, large = (verbs.jobs(given={"examples": n}, price_a=1, price_b=2) for n in (1_000, 50_000))
    for one, other in zip(small.jobs, large.jobs, strict=True):
        assert one.compared is not None
        assert other.compared is not None
        assert one.compared.usd_a < other.compared.usd_a
        assert one.compared.usd_b < other.compared.usd_b


def test_methods_at_the_prices_of_seed_004():
    # The page: about 40 times per hour of hardware, $36.88 over $0.92.
    found = {row.method: row for row in verbs.methods("meta-llama/Llama-3.1-70B", provider="gpuwithcrypto").rows}
    full = found["full, AdamW"]
    assert str(full.rig_per_hour) == "8x B200-180GB"
    assert full.ratio_per_hour == pytest.approx(36.88 / 0.92)
    ratios = [row.ratio_per_hour for row in found.values()]
    assert ratios == sorted(ratios)  # QLoRA <= LoRA <= full
    # a run on the larger rig is also faster, so that it costs less than 40 times as much
    assert 1 < (full.ratio_per_run or 0) < full.ratio_per_hour


def test_a_method_that_nothing_holds_has_no_figure_but_a_reason(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(f"provider,gpu,n_gpus,usd_per_hour,observed_at,source\none,{H100},1,2.0,2026-10-19,test\n")
    found = {row.method: row for row in verbs.methods("meta-llama/Llama-3.1-70B", prices=prices).rows}
    assert found["qlora"].usd_per_hour == 2.0
    assert found["full, AdamW"].usd_per_hour is None
    assert "no machine on offer holds it: 1x H100-SXM-80GB needs" in (found["full, AdamW"].why_not or "")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("compare A100-SXM4-80GB", "1 names to compare"),
        ("compare --jobs --methods", "--jobs and --methods at once"),
        ("compare --methods", "0 names to compare; expected MODEL"),
        ("compare --decisions P4", "P4-8GB has no bf16"),
        ("compare --jobs --price-b 0", "the price of H100-SXM-80GB is 0"),
        ("compare --decisions --provider nobody", "no offer of provider 'nobody'"),
        ("compare --jobs --hours-a 3", "--jobs and --hours-a contradict"),
        ("compare --rules measured-speedup", "--rules without a table"),
        ("compare --jobs --rules flops-6n-0.3", "has no table 'jobs'"),
        (f"compare H100-SXM-80GB H100-SXM-80GB {LLAMA} --against bananas=3", "'bananas' is no setting"),
        (f"compare H100-SXM-80GB H100-SXM-80GB {LLAMA} --against method=lora,full", "has several values"),
        (f"compare A100-SXM4-80GB H100-SXM-80GB {LLAMA} --price-a 0", "the price of A100-SXM4-80GB is 0"),
        (f"compare A100-SXM4-80GB H100-SXM-80GB {LLAMA} --hours-a 0", "the hours on 1x A100-SXM4-80GB are 0"),
    ],
)
def test_mistakes_are_named_and_no_flag_is_ignored(command, said, capsys):
    assert cli.run(command.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--json", "--csv", "--markdown", "--html"])
@pytest.mark.parametrize("table", ["--jobs", "--decisions", "--methods meta-llama/Llama-3.1-8B"])
def test_every_table_in_every_form(table, form, capsys):
    assert cli.run(["compare", *table.split(), form]) == 0
    out = capsys.readouterr().out
    if form == "--json":
        assert json.loads(out)
    else:
        assert {"--csv": ",", "--markdown": "|---|", "--html": "<table>"}[form] in out
