"""What-if: the best plan by value, in tables and charts, and other jobs that say what they change."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from perrun import verbs
from perrun.alternatives import alternatives
from perrun.errors import InvalidInput
from perrun.surfaces import cli
from perrun.surfaces.cli import forest, vary
from perrun.terms import Job

LLAMA = "meta-llama/Llama-3.1-8B"
JOB = {"method": "qlora", "examples": 2000, "tokens_per_example": 1000}


def test_every_combination_is_the_plan_of_its_job() -> None:
    found = verbs.vary(LLAMA, {"lora_rank": [8, 64], "gpus": [("L40S-48GB",), ("H100-SXM-80GB",)]}, JOB)
    assert [tuple(one.change.values()) for one in found] == [
        (8, ("L40S-48GB",)), (8, ("H100-SXM-80GB",)), (64, ("L40S-48GB",)), (64, ("H100-SXM-80GB",))
    ]  # fmt: skip
    alone = verbs.plan(LLAMA, {**JOB, "lora_rank": 64}, gpus=("L40S-48GB",), limit=1)
    assert found[2].plan == alone.plans[0]


def test_a_value_without_a_plan_says_why() -> None:
    (found,) = verbs.vary(LLAMA, {"precision": ["fp8"]}, JOB | {"method": "full"}, gpus=("A100-SXM4-80GB",))
    assert found.plan is None
    assert found.why_not is not None
    assert "FP8" in found.why_not


def test_more_tokens_cost_more_along_an_axis() -> None:
    usd = [one.plan.usd for one in verbs.vary(LLAMA, {"examples": [500, 1000, 5000, 20_000]}, JOB) if one.plan]
    assert usd == sorted(usd)
    assert len(usd) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seq_len=1024,2048", {"seq_len": [1024, 2048]}),
        ("rank=8", {"lora_rank": [8]}),
        ("tokens=100,200", {"tokens_per_example": [100, 200]}),
        ("packing=yes,no", {"packing": [True, False]}),
        ("epochs=0.5,1", {"epochs": [0.5, 1.0]}),
        ("gpu=4090", {"gpus": [("RTX-4090-24GB",)]}),
        ("budget=5,10", {"budget_usd": [5.0, 10.0]}),
    ],
)
def test_axes_are_read_by_flag_and_by_field(text: str, expected: dict) -> None:
    assert vary.axes([text]) == expected


@pytest.mark.parametrize(
    ("texts", "named"),
    [(["colour=red"], "'colour' is no setting"), (["rank="], "rank=VALUE"), (["rank=many"], "lora_rank is 'many'")],
)
def test_mistakes_of_axes_are_named(texts: list[str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        vary.axes(texts)


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(InvalidInput, match="400 combinations"):
        verbs.vary(LLAMA, {"lora_rank": list(range(1, 21)), "examples": list(range(1, 21))}, JOB)


def test_the_chart_is_to_scale() -> None:
    rows = [forest.Row("a", 2.0, 1.0, 4.0), forest.Row("b", 1.0, 1.0, 1.0)]
    first, second = forest.text(rows, "$")
    inside = first.split("|")[1]
    assert (inside.index("-"), inside.index("o"), inside.rindex("-")) == (10, 20, 39)  # a quarter, a half, the end
    assert second.split("|")[1].strip() == "o"
    root = ET.fromstring(forest.svg((("$", rows), ("h", rows)), "what & why"))
    circles = [float(one.get("cx", 0)) for one in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles[:2] == [forest.LEFT + forest.PANEL / 2, forest.LEFT + forest.PANEL / 4]


def test_the_command_prints_table_chart_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "vary.svg"
    flags = f"--method qlora --examples 2000 --vary rank=8,64 --vary method=lora,qlora --svg {picture}"
    assert cli.run(["plan", LLAMA, *flags.split()]) == 0
    printed = capsys.readouterr().out
    assert printed.count("lora_rank 8, method lora") == 3  # table, dollars, hours
    ET.parse(picture)
    assert cli.run(["plan", LLAMA, "--method", "qlora", "--vary", "rank=8,64", "--json"]) == 0
    assert [one["change"] for one in json.loads(capsys.readouterr().out)] == [{"lora_rank": 8}, {"lora_rank": 64}]
    assert cli.run(["plan", LLAMA, "--svg", str(picture)]) == 2


def test_alternatives_change_the_job_and_say_what_it_does() -> None:
    full = Job(model=LLAMA, method="full", epochs=3, seq_len=4096)
    found = {tuple(change.items()): means for change, means in alternatives(full)}
    assert found[("method", "qlora"),].count("4 bits") == 1
    assert (("epochs", 2.0),) in found
    assert (("seq_len", 2048),) in found
    assert (("optimizer", "adamw-8bit"),) in found
    assert not [change for change in found if "lora_rank" in dict(change)]  # nothing of rank in full training
    for change, _ in alternatives(full):
        assert full.model_copy(update=change) != full
    assert [change for change, _ in alternatives(Job(model=LLAMA, method="qlora", lora_rank=8, seq_len=512))] == []


def test_alternatives_of_a_job_that_fits_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--method", "full", "--gpu", "4090", "--n-gpus", "1", "--alternatives"]
    assert cli.run(["plan", "Qwen/Qwen2.5-7B", *flags]) == 1
    told = capsys.readouterr()
    assert "method qlora" in told.out
    assert "no rig on offer holds full" in told.err
    assert cli.run(["plan", "Qwen/Qwen2.5-7B", "--method", "lora", "--alternatives", "--json", "--limit", "1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"method": "qlora"} in [one["change"] for one in answer["alternatives"]]
