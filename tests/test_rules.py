"""The published rules give the tables of their pages to the printed digit (tests/data/golden)."""

import csv
from pathlib import Path

import pytest

from perrun import rules
from perrun.errors import InvalidInput, UnknownName
from perrun.rules import bytes_rule, flops, laws

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
