"""`perrun plan`: the answer's form, its sums, its filters, and the same rows in every output."""

import csv
import io
import json
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from perrun import terms, verbs
from perrun.errors import InvalidInput, NothingFits
from perrun.facts import gpus
from perrun.surfaces import cli

CONFIGS = Path(__file__).parent / "data" / "configs"
MODELS = (
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen2.5-32B",
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-27b-pt",
    str(CONFIGS / "Qwen__Qwen3-8B.json"),
    str(CONFIGS / "deepseek-ai__DeepSeek-V2-Lite.json"),
)
JOB = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}
# The JSON contract of the project: names that programs rely on. An answer may hold more.
CONTRACT = {
    "": "job plans rejected",
    "plan": "offer strategy estimate hours hours_low hours_high usd usd_low usd_high usd_per_million_tokens cost_lines",
    "offer": "provider term usd_per_hour observed_at source rig",
    "rig": "gpu n_gpus n_nodes",
    "estimate": "memory host_ram_gib tokens_per_s tokens_per_s_low tokens_per_s_high time_lines fits_probability",
    "memory": "allocated_gib reserved_gib device_gib low_gib high_gib lines",
    "cost_line": "name quantity unit usd",
    "rejected": "rig reason needs_gib has_gib",
}


@pytest.fixture(autouse=True)
def _no_book(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))


def plan(model=MODELS[0], job=JOB, strategy=None, **wish):
    return verbs.plan(model, job, strategy, **wish)


def test_the_answer_holds_the_names_of_the_contract():
    answer = json.loads(plan(limit=3).model_dump_json())
    found = answer["plans"][0]
    held = {
        "": answer,
        "plan": found,
        "offer": found["offer"],
        "rig": found["offer"]["rig"],
        "estimate": found["estimate"],
        "memory": found["estimate"]["memory"],
        "cost_line": found["cost_lines"][0],
        "rejected": answer["rejected"][0],
    }
    for noun, names in CONTRACT.items():
        assert set(names.split()) <= set(held[noun]), noun
    assert found["offer"]["observed_at"] == date.fromisoformat(found["offer"]["observed_at"]).isoformat()


@pytest.mark.parametrize("model", MODELS)
def test_the_json_of_the_command_keeps_its_published_schema(model, capsys):
    assert cli.run(["schema", "plan"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert cli.run(["plan", model, "--method", "qlora", "--examples", "100", "--json", "--limit", "0"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schema)


@pytest.mark.parametrize("model", MODELS)
def test_totals_are_the_sums_of_their_lines(model):
    for one in plan(model).plans:
        found = one.estimate
        assert one.usd == pytest.approx(sum(line.usd for line in one.cost_lines), rel=1e-12)
        assert found.memory.device_gib == pytest.approx(sum(found.memory.lines.values()), rel=1e-9)
        assert found.step_s == pytest.approx(sum(found.time_lines.values()), rel=1e-9)
        # 5,000 rows x 1,500 tokens x 3 epochs = 22.5M tokens
        assert one.hours == pytest.approx(22.5e6 / found.tokens_per_s / 3600, rel=1e-9)
        assert one.usd_per_million_tokens == pytest.approx(one.usd / 22.5, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_ranges_hold_their_middle_and_what_is_ranked_fits(model):
    for one in plan(model).plans:
        memory = one.estimate.memory
        assert one.usd_low <= one.usd <= one.usd_high
        assert one.hours_low < one.hours < one.hours_high
        assert memory.low_gib < memory.device_gib < memory.high_gib
        assert memory.allocated_gib <= memory.reserved_gib <= memory.device_gib
        assert one.estimate.fits_probability >= 0.9
        assert one.strategy.micro_batch * one.strategy.grad_accum * one.offer.rig.n_gpus == 16


@pytest.mark.parametrize(("sort", "field"), [("usd", "usd"), ("hours", "hours"), ("usd_per_million_tokens", "usd")])
def test_plans_are_sorted(sort, field):
    values = [getattr(one, field) for one in plan(sort=sort).plans]
    assert values == sorted(values)
    assert len(values) > 300


def test_sorted_by_fit():
    fits = [round(one.estimate.fits_probability, 2) for one in plan(sort="fit", min_fit=0.5).plans]
    assert fits == sorted(fits, reverse=True)


def test_a_limit_keeps_the_first_and_changes_nothing_else():
    every, few = plan(), plan(limit=5)
    assert few.plans == every.plans[:5]
    assert few.verdict == every.verdict
    assert few.rejected == every.rejected
    assert few.prices_as_of == every.prices_as_of


def test_the_verdict_says_the_numbers_of_the_plans():
    answer = plan()
    cheapest = min(answer.plans, key=lambda one: one.usd)
    fastest = min(answer.plans, key=lambda one: one.hours)
    for one in (cheapest, fastest):
        assert f"{one.offer.rig.n_gpus}x {one.offer.rig.gpu} at {one.offer.provider}" in answer.verdict
        assert f"${one.usd:,.2f}" in answer.verdict
    assert f"${fastest.usd - cheapest.usd:,.2f} more" in answer.verdict
    assert "\n" not in answer.verdict


def test_a_fastest_that_is_also_the_cheapest_is_said_once():
    answer = plan(gpus=("L4-24GB",), providers=("gcp",), terms=("on-demand",), max_gpus=1)
    assert answer.verdict.count("gcp") == 1
    assert answer.verdict.endswith("it is also the fastest.")


def test_what_does_not_fit_is_rejected_with_what_it_needs_and_has():
    # 70.55B parameters x 2 bytes = 131.4 GiB of frozen weights on every card that does not shard them
    answer = plan("meta-llama/Llama-3.1-70B", {**JOB, "method": "lora"})
    small = [r for r in answer.rejected if r.needs_gib is not None]
    assert {(r.rig.gpu, r.rig.n_gpus) for r in small} >= {("H100-SXM-80GB", 1), ("RTX-4090-24GB", 1)}
    for one in small:
        assert one.has_gib is not None
        assert one.reason.startswith(f"needs {one.needs_gib:.1f} GiB, has {one.has_gib:.1f}")
        # a card that seems large enough says how sure that is
        assert ": fits with " in one.reason or one.needs_gib > one.has_gib
        if one.rig.n_gpus == 1:
            assert one.needs_gib > 131.4
    kept = {one.offer.rig for one in answer.plans}
    assert not kept & {r.rig for r in answer.rejected}


def test_cards_without_bf16_are_rejected_with_that_reason():
    reasons = {r.rig.gpu: r.reason for r in plan().rejected}
    assert reasons["T4-16GB"] == "T4-16GB has no bf16 (Turing)"
    assert "T4-16GB" in {one.offer.rig.gpu for one in plan(job={**JOB, "precision": "fp16-mixed"}).plans}


def test_a_precision_of_new_cards_rejects_the_old_ones_alone():
    answer = plan(job={"method": "full", "precision": "mxfp8"})
    assert {gpus.get(one.offer.rig.gpu).architecture.split()[0] for one in answer.plans} == {"Blackwell"}
    assert "mxfp8" in next(r.reason for r in answer.rejected if r.rig.gpu == "H100-SXM-80GB")


def test_budget_and_deadline():
    every = plan()
    cheap, quick = plan(budget_usd=2), plan(deadline_h=0.5)
    assert cheap.plans == [one for one in every.plans if one.usd <= 2]
    assert quick.plans == [one for one in every.plans if one.hours <= 0.5]
    assert all(f"${one.usd:,.2f}" in cheap.verdict for one in cheap.plans[:1])


def test_an_impossible_wish_says_the_nearest():
    cheapest, fastest = plan().plans[0], min(one.hours for one in plan().plans)
    with pytest.raises(NothingFits, match=f"no plan under \\$0.01; cheapest \\${cheapest.usd:.2f}; under"):
        plan(budget_usd=0.01)
    with pytest.raises(NothingFits, match=r"no plan within 0\.001 h; fastest ") as caught:
        plan(deadline_h=0.001)
    assert float(caught.value.what.split("fastest ")[1].split()[0]) == pytest.approx(fastest, rel=0.05)


@pytest.mark.parametrize(
    ("wish", "holds"),
    [
        ({"gpus": ("L4-24GB",)}, lambda one: one.offer.rig.gpu == "L4-24GB"),
        ({"providers": ("aws",)}, lambda one: one.offer.provider == "aws"),
        ({"terms": ("interruptible",)}, lambda one: one.offer.term == "interruptible"),
        ({"terms": ("market-floor",)}, lambda one: one.offer.term == "market-floor"),
        ({"regions": ("us-east-1",)}, lambda one: one.offer.region == "us-east-1"),
        ({"max_gpus": 1}, lambda one: one.offer.rig.n_gpus == 1),
    ],
)
def test_filters(wish, holds):
    answer = plan(**wish)
    assert answer.plans
    assert all(map(holds, answer.plans))


def test_floors_of_markets_are_ranked_only_when_asked_for():
    assert "market-floor" not in {one.offer.term for one in plan().plans}


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"providers": ("awss", "aws")}, "no offer with provider awss"),
        ({"regions": ("atlantis",)}, "no offer with region atlantis"),
        ({"terms": ("weekly",)}, "no offer with term weekly"),
        ({"gpus": ("GTX-1080-8GB",)}, "no offer with gpu GTX-1080-8GB"),
        ({"providers": ("aws",), "terms": ("prepaid-block",)}, "no offer satisfies all filters at once"),
    ],
)
def test_filters_that_nothing_satisfies(wish, said):
    with pytest.raises(InvalidInput, match=said):
        plan(**wish)


def test_an_early_day_knows_no_price():
    with pytest.raises(InvalidInput, match="no price was known on 2020-01-01"):
        plan(as_of=date(2020, 1, 1))


def test_as_of_takes_only_older_prices():
    day = date(2026, 5, 30)
    assert max(one.offer.observed_at for one in plan(as_of=day).plans) <= day


@pytest.mark.parametrize("method", ["full", "lora", "qlora", "lora-int8", "dora", "qdora"])
@pytest.mark.parametrize("objective", ["sft", "pretrain", "dpo", "orpo", "kto", "rm"])
def test_every_method_and_objective_gives_plans_or_a_reason(method, objective):
    job = {"method": method, "objective": objective}
    try:
        found = plan("meta-llama/Llama-3.1-70B", job, max_gpus=8).verdict
    except NothingFits as why:
        found = why.what
    assert found.startswith(
        ("Cheapest: ", f"no rig on offer holds {method} of meta-llama/Llama-3.1-70B: the nearest, ")
    )


def test_an_indivisible_batch_names_the_micro_batch():
    with pytest.raises(InvalidInput, match="micro_batch 3 does not divide the 16 sequences"):
        plan(strategy={"micro_batch": 3})


def test_a_longest_row_below_the_mean_is_a_mistake():
    with pytest.raises(InvalidInput, match="longest_example 100 is below the mean"):
        plan(job={**JOB, "longest_example": 100})


def command(capsys, *more):
    arguments = ["plan", MODELS[0], "--method", "qlora", "--examples", "5000", "--tokens", "1500", "--epochs", "3"]
    assert cli.run([*arguments, *more]) == 0
    return capsys.readouterr().out


def test_markdown_and_the_drawn_table_have_the_rows_of_the_json(capsys):
    answer = terms.PlanAnswer.model_validate_json(command(capsys, "--json"))
    head, _, *lines = command(capsys, "--markdown").splitlines()
    names = [cell.strip() for cell in head.strip("|").split("|")]
    drawn = command(capsys).splitlines()
    assert len(answer.plans) == len(lines) == 20
    for one, in_markdown, line in zip(answer.plans, lines, drawn[2:], strict=False):
        cells = [cell.strip() for cell in in_markdown.strip("|").split("|")]
        row = dict(zip(names, cells, strict=True))
        assert row["rig"] == f"{one.offer.rig.n_gpus}x {one.offer.rig.gpu}"
        assert row["provider"] == one.offer.provider
        assert row["price of"] == one.offer.observed_at.isoformat()
        assert row["$ per run (range)"].split()[0] == f"{one.usd:,.2f}"
        assert row["tokens/s (range)"].split()[0] == f"{one.estimate.tokens_per_s:,.0f}"
        assert line.split() == " ".join(cells).split()


def test_csv_has_the_figures_of_the_json_unrounded_each_in_a_column(capsys):
    answer = terms.PlanAnswer.model_validate_json(command(capsys, "--json"))
    rows = list(csv.DictReader(io.StringIO(command(capsys, "--csv"))))
    assert len(rows) == len(answer.plans)
    for one, row in zip(answer.plans, rows, strict=True):
        assert row["gpu"] == one.offer.rig.gpu
        assert int(row["n_gpus"]) == one.offer.rig.n_gpus
        assert row["provider"] == one.offer.provider
        assert row["observed_at"] == one.offer.observed_at.isoformat()
        for name in ("hours", "hours_low", "hours_high", "usd", "usd_low", "usd_high", "usd_per_million_tokens"):
            assert float(row[name]) == pytest.approx(getattr(one, name), rel=1e-12)
        assert float(row["tokens_per_s_low"]) == pytest.approx(one.estimate.tokens_per_s_low, rel=1e-12)
        assert float(row["device_gib"]) == pytest.approx(one.estimate.memory.device_gib, rel=1e-12)


def test_a_table_in_a_pipe_has_no_trailing_blanks_and_its_rest_follows(capsys):
    out = command(capsys)
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    for said in ("Cheapest: ", "Rests on:", "22.5M tokens", "newest 2026-10-29", "Rejected:", "T4-16GB has no bf16"):
        assert said in out


def test_explain_shows_every_line_of_the_first_plan_with_its_law(capsys):
    answer = terms.PlanAnswer.model_validate_json(command(capsys, "--json", "--limit", "1"))
    out = command(capsys, "--explain")
    first = answer.plans[0]
    for name in (*first.estimate.memory.lines, *(n for n, s in first.estimate.time_lines.items() if s)):
        assert f"  {name}" in out
    for line in first.cost_lines:
        assert f"{line.usd:9.2f}  {line.name}" in out
    assert first.offer.source in out


def test_tokens_are_counted_with_and_without_padding() -> None:
    job = {"method": "lora", "packing": False, "tokens_per_example": 500, "seq_len": 1024}
    rig = terms.Rig(gpu="A100-SXM4-80GB")
    padded = verbs.estimate("meta-llama/Llama-3.1-8B", rig, job, {"micro_batch": 8})
    assert padded.processed_tokens_per_s is not None
    assert padded.processed_tokens_per_s > 1.2 * padded.tokens_per_s  # eight rows are as long as their longest
    packed = verbs.estimate("meta-llama/Llama-3.1-8B", rig, {"method": "lora", "packing": True}, {"micro_batch": 8})
    assert packed.processed_tokens_per_s == pytest.approx(packed.tokens_per_s)
