"""The published rules give the tables of their pages to the printed digit (tests/data/golden)."""

import csv
from pathlib import Path

import pytest

from perrun import rules, verbs
from perrun.errors import InvalidInput, UnknownName
from perrun.rules import bytes_rule, flops, laws, speedup
from perrun.surfaces import cli

GOLDEN = Path(__file__).parent / "data" / "golden"


def golden(name: str) -> list[dict[str, str]]:
    with (GOLDEN / f"{name}.csv").open() as handle:
        return list(csv.DictReader(handle))


def same(ours: list[dict], theirs: list[dict[str, str]], names: dict[str, str] | None = None) -> None:
    """Every printed cell of the page, as a number where it is one; what it leaves out is not asked."""
    assert len(ours) == len(theirs)
    for mine, printed in zip(ours, theirs, strict=True):
        for column, value in printed.items():
            if column == "seed" or value == "":
                continue
            got = mine[(names or {}).get(column, column)]
            try:
                assert float(got) == float(value), (column, got, value)
            except ValueError:
                assert got == value, (column, got, value)


def test_calculator_cards():
    same(rules.table("flops-6n-0.3"), golden("calculator_cards"))


def test_no_card_is_listed_for_70b_that_the_page_leaves_out():
    for mine, printed in zip(flops.cards(), golden("calculator_cards"), strict=True):
        assert bool(mine["hours_70b_8m_tokens"]) == bool(printed["hours_70b_8m_tokens"])


def test_breakeven_jobs():
    same(rules.table("measured-speedup"), golden("breakeven_jobs"))


def test_fit_matrix():
    names = {
        "qlora_52_5_gb": "qlora",
        "lora_168_gb": "lora",
        "full_adam8bit_840_gb": "full_adam8bit",
        "full_adamw_1260_gb": "full_adamw",
    }
    same(rules.table("bytes-per-parameter", "fit"), golden("fit_matrix"), names)


def test_eight_h200_cover_the_16_byte_rule_and_are_still_no():
    row = next(r for r in bytes_rule.fit() if r["rig"] == "8x H200")
    assert float(row["total_memory_gb"]) - laws.memory_gb(70, 16) == 8
    assert row["full_adamw"] == "no"


def test_assumed_runs():
    same(rules.table("bytes-per-parameter", "runs"), golden("assumed_runs"))


def test_planning_rules():
    names = {"gb_for_70b_low": "gb_low", "gb_for_70b_high": "gb_high"}
    same(rules.table("bytes-per-parameter", "rules"), golden("planning_rules"), names)


def test_rules_apply_to_other_jobs():
    # 1 A100 hour under the rule is 1942.7 x 3600 tokens of an 8.03B model
    found = {row["gpu"]: row for row in rules.plan("flops-6n-0.3", "x/y-8B", 8_030_000_000, 1942.71 * 3600)}
    assert found["A100-80GB"]["hours"] == "1.00"
    assert found["A100-80GB"]["usd"] == "1.59"
    small = {row["rig"]: row for row in rules.plan("bytes-per-parameter", "meta-llama/Llama-3.1-8B", 8_030_261_248, 1)}
    assert small["1x L40S"]["lora"] == "yes"  # 8 x 2 x 1.2 = 19.2 GB
    assert small["1x A100 80GB"]["full_adamw"] == "no"  # 8 x 18 = 144 GB


def test_nominal_size_is_the_one_in_the_name():
    assert laws.nominal_billions("meta-llama/Llama-3.1-70B", 70_553_706_496) == 70
    assert laws.nominal_billions("google/gemma-2-2b-it", 2_614_341_888) == 2
    assert laws.nominal_billions("microsoft/phi-4", 14_659_507_200) == pytest.approx(14.6595072)


def test_a_rule_without_hours_does_not_plan():
    with pytest.raises(InvalidInput, match="does not predict"):
        rules.plan("measured-speedup", "x/y-8B", 1, 1)


def test_unknown_rules_name_the_known():
    with pytest.raises(UnknownName, match=r"flops-6n-0\.3"):
        rules.get("6n")


# ---- every table of the pages, as printed there (../docs/seeds.md says where they stand) ----

PRINTED = {
    ("flops-6n-0.3", "memory"): """
        Llama-3.1-8B qlora 6.2 fits fits fits
        Llama-3.1-8B lora 17.9 fits fits fits
        Qwen2.5-32B qlora 21.3 fits fits fits
        Llama-3.1-70B qlora 44.3 no fits fits
        Llama-3.1-70B lora 146.6 no no no""",
    ("flops-6n-0.3", "speed"): """
        A100-40GB 312 1943 1.00
        A100-80GB 312 1943 1.00
        H100-80GB 989 6158 3.17
        H200-141GB 989 6158 3.17""",
    ("flops-6n-0.3", "prices"): """
        RTX-4090-24GB 24 0.44 0.119
        RTX-6000-Ada-48GB 48 0.79 0.195
        L40S-48GB 48 1.19 0.147
        A100-40GB 40 1.19 0.170
        A100-80GB 80 1.59 0.227
        H100-80GB 80 2.69 0.121
        H200-141GB 141 3.39 0.153""",
    ("flops-6n-0.3", "run-8b"): """
        RTX-4090-24GB 6.08 2.68
        H100-80GB 1.01 2.73
        A100-40GB 3.22 3.83
        L40S-48GB 2.77 3.30
        A100-80GB 3.22 5.12
        H200-141GB 1.01 3.44""",
    ("flops-6n-0.3", "run-70b"): """
        H100-80GB 3.17 8.53
        L40S-48GB 8.67 10.31
        H200-141GB 3.17 10.76
        A100-80GB 10.06 15.99""",
}


@pytest.mark.parametrize(("name", "table"), PRINTED)
def test_tables_of_page_002_to_the_digit(name, table):
    printed = [line.split() for line in PRINTED[name, table].strip().splitlines()]
    ours = [[str(cell).rpartition("/")[2] for cell in row.values()] for row in rules.table(name, table)]
    assert ours == printed


def test_what_differs_between_the_cards_as_pages_000_and_001_print_it():
    found = {row["what"]: row for row in rules.table("measured-speedup", "differs")}
    assert found["price"]["ratio"] == "3.59"
    assert (found["bandwidth"]["a100"], found["bandwidth"]["h100"]) == ("2.0", "3.35")
    assert found["BF16 tensor (dense)"]["h100"] == "990"
    assert (found["NVLink"]["a100"], found["NVLink"]["h100"]) == ("600", "900")


def test_rigs_by_method_as_page_004_prints_them():
    assert [(row["gb_low"], row["gb_high"], row["rigs"]) for row in rules.table("bytes-per-parameter", "rigs")] == [
        ("52.5", "52.5", "1x A100 80GB ($0.92/h) or 1x H100 ($2.32/h)"),
        ("140", "168", "1x B200 ($4.61/h) or 2x H200 ($6.14/h)"),
        ("840", "840", "8x H200 ($24.56/h)"),
        ("1120", "1260", "8x B200 ($36.88/h)"),
        ("52.5", "52.5", "1x L40S"),
    ]


def test_full_over_qlora_as_page_004_counts():
    full = rules.table("bytes-per-parameter", "methods")[-1]
    assert full["ratio_per_hour"] == "40.1"  # "about 40 times": 36.88 over 0.92
    assert full["ratio_per_run"] == f"{774.48 / 9.20:.1f}"
    assert full["hours_are"] == "assumed by the page, not measured"


def test_hours_that_nobody_predicted_say_so_in_their_line():
    for name, table in (("measured-speedup", "jobs"), ("bytes-per-parameter", "runs")):
        for row in rules.table(name, table):
            assert "not" in row["hours_are"]


def test_decisions_follow_from_the_numbers_and_not_from_the_text():
    found = rules.table("measured-speedup", "decisions")
    line = 1.680 / 0.468
    for high, row in zip((2.2, 2.0, 2.2, 3.0, 3.17), found, strict=True):
        assert high < line
        assert row["rent"] == "A100 SXM4"
        assert f"at least {line / high - 1:.0%} dearer" in row["why"]
    # the page itself rents an H100 for two of the five
    assert [row["page_rents"].startswith("H100") for row in found] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("low", "high", "ratio", "card"), [(1, 2, 3, "A100"), (3.1, 4, 3, "H100"), (2, 4, 3, "either")]
)
def test_a_decision_needs_the_whole_range_on_one_side(low, high, ratio, card):
    assert speedup._chosen(low, high, ratio)[0].startswith(card)


# ---- the same tables by our model ----


@pytest.mark.parametrize(("name", "table"), [(name, table) for name, one in rules.SETS.items() for table in one.tables])
def test_every_table_of_the_pages_has_one_of_ours(name, table):
    ours, theirs = verbs.rules(name, table, page_prices=True), rules.table(name, table)
    assert ours
    prices = {"price_a_usd_per_gpu_hour", "price_b_usd_per_gpu_hour", "price_usd_per_gpu_hour", "price_usd_per_hour"}
    for column in prices & set(ours[0]) & set(theirs[0]):
        assert [float(row[column]) for row in ours] == [float(row[column]) for row in theirs]


def test_our_rows_are_theirs():
    for name, table, key in (("flops-6n-0.3", "cards", "gpu"), ("flops-6n-0.3", "speed", "gpu")):
        assert [row[key] for row in verbs.rules(name, table)] == [row[key] for row in rules.table(name, table)]
    assert {row["gpu"] for row in verbs.rules("flops-6n-0.3", "run-8b")} == set(flops.OF_SMALL_RUN)


def test_our_memory_grows_from_qlora_to_lora_to_full_and_so_does_the_hardware():
    rows = verbs.rules("flops-6n-0.3", "memory")
    for model in {row["model"] for row in rows}:
        mine = [float(row["memory_gb"]) for row in rows if row["model"] == model]  # qlora, lora
        assert mine == sorted(mine)
    for row in verbs.rules("bytes-per-parameter", "fit", page_prices=True):
        order = [("no", "tight", "yes").index(row[method]) for method in bytes_rule.JUDGED_BY]
        assert order == sorted(order, reverse=True), row
    ratios = [float(row["ratio_per_hour"]) for row in verbs.rules("bytes-per-parameter", "methods", page_prices=True)]
    assert ratios == sorted(ratios)


def test_form_factors_that_a_page_leaves_open_are_the_ones_on_offer():
    sold = {row["gpu"] for row in verbs.rules("bytes-per-parameter", "fit", provider="gpuwithcrypto")}
    assert "A100-PCIe-80GB" in sold
    assert all(row["price_usd_per_hour"] for row in verbs.rules("bytes-per-parameter", "fit", provider="gpuwithcrypto"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rules --ours", "no rule set is named"),
        ("rules measured-speedup --provider lambda", "without --ours"),
        ("rules measured-speedup --ours --page-prices --provider lambda", "at once"),
        ("rules measured-speedup --ours --provider nobody", "no offer of provider 'nobody'"),
        ("rules bytes-per-parameter --ours", "prints several tables"),
        ("rules measured-speedup --ours --table rigs", "has no table 'rigs'"),
    ],
)
def test_mistakes_are_named(command, said, capsys):
    assert cli.run(command.split()) == 2
    assert said in capsys.readouterr().err
