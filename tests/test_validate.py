"""Scores worked by hand on a stand-in estimator, and rows of the answer."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from perrun import runs
from perrun import validation as v
from perrun.errors import InvalidInput, MissingFact
from perrun.estimator import estimate_setting
from perrun.runs import Settings
from perrun.terms import Estimate, Memory
from perrun.validation import paired, rows, scores
from perrun.validation.scores import Point

HEADER = (
    "source,model,method,precision,lora_rank,lora_targets,seq_len,packing,micro_batch,framework,gpu,n_gpus,sharding,"
    "peak_mem_gb,mem_unit,mem_kind,outcome,tokens_per_s,id,notes"
)
ROW = "somebody,meta-llama/Llama-2-7b-hf,lora,bf16-true,16,attn,4096,yes,1,trl,H100-SXM-80GB,1,none"


def table(tmp_path: Path, *ends: str, header: str = HEADER, row: str = ROW) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *(f"{row},{end}" for end in ends)]) + "\n", encoding="utf-8")
    return path


def answer(allocated: float = 20, tokens: float = 1000, fits: float = 1.0) -> Estimate:
    """Reserved is 1.25 x and the device 1.5 x allocated; ranges are 20 % of the device and a quarter of the speed."""
    device = 1.5 * allocated
    return Estimate(
        memory=Memory(
            allocated_gib=allocated,
            reserved_gib=1.25 * allocated,
            device_gib=device,
            low_gib=0.8 * device,
            high_gib=1.2 * device,
            allocated_low_gib=0.8 * allocated,
            allocated_high_gib=1.2 * allocated,
            phase="backward",
            lines={"all": device},
        ),
        host_ram_gib=1,
        tokens_per_s=tokens,
        tokens_per_s_low=0.75 * tokens,
        tokens_per_s_high=1.25 * tokens,
        step_s=1,
        time_lines={"all": 1},
        fits_probability=fits,
    )


def always(_: Settings) -> Estimate:
    return answer()


def test_memory_is_compared_with_the_figure_of_its_kind(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "20,GiB,allocated,ok,,a,",
        "20,GiB,reserved,ok,,b,",
        "20,GiB,nvidia-smi,ok,,c,",
    )
    found = v.validate([path], estimate=always).summary.memory.by_kind
    assert found["allocated"].median == 0
    assert found["reserved"].median == pytest.approx(25 / 20 - 1)
    assert found["nvidia-smi"].bias == pytest.approx(30 / 20 - 1)
    # 20 GiB lies inside 0.8..1.2 of 20 and on no other range: 25 x 0.8 = 20 is the edge, 30 x 0.8 = 24 is above.
    assert [found[kind].coverage for kind in ("allocated", "reserved", "nvidia-smi")] == [1, 1, 0]


def test_two_kinds_in_one_row_are_two_points(tmp_path: Path) -> None:
    path = table(tmp_path, '20,GiB,allocated,ok,,a,"config none; nvidia-smi 30720 MiB; x"')
    found = v.validate([path], estimate=always).summary.memory
    assert found.all is not None
    assert found.all.n == 2
    assert found.by_kind["nvidia-smi"].median == pytest.approx(0)  # 30720 MiB = 30 GiB


def test_memory_of_unstated_kind_is_in_no_total(tmp_path: Path) -> None:
    found = v.validate([table(tmp_path, "50,GiB,unknown,ok,,a,")], estimate=always).summary
    assert found.memory.all is None
    assert found.memory.by_kind["unknown"].bias == pytest.approx(25 / 50 - 1)
    assert found.broken == []


def point(predicted: float, measured: float, low: float = 0, high: float = 1e9) -> Point:
    return Point("s", "lora", "g", "trl", "k", predicted, measured, low, high)


def test_score_by_hand() -> None:
    # errors 0, 0.1, 0.2, 0.5; ratios 1, 0.9, 1.2, 1.5: median of errors 0.15, of ratios 1.1; p90 at position 2.7
    found = scores.score([point(100, 100), point(90, 100), point(120, 100), point(150, 100, low=101)])
    assert found is not None
    assert found.n == 4
    assert found.median == pytest.approx(0.15)
    assert found.bias == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.2 + 0.7 * 0.3)
    assert found.coverage == 0.75
    assert scores.score([]) is None


def test_outcomes_by_hand() -> None:
    found = scores.outcomes([(0.0, "oom"), (0.5, "oom"), (1.0, "oom"), (1.0, "ok"), (0.05, "ok")])
    assert found.oom == 3
    assert found.oom_warned == pytest.approx(2 / 3)
    assert found.ok_allowed == 0.5
    assert found.may == 0.2


def test_budgets_break_only_with_enough_runs() -> None:
    good = scores.Score(n=5, median=0.01, p90=0.1, bias=0.5, coverage=0.1)
    assert scores.broken("memory", {"allocated": good}) == []  # bias and coverage need 30 runs
    bad = good.model_copy(update={"p90": 0.16, "n": 30})
    assert {one.statistic for one in scores.broken("memory", {"allocated": bad})} == {"p90", "bias"}


def test_budget_of_each_publication() -> None:
    fine = scores.Score(n=10, median=0.3, p90=0.4, bias=0.19, coverage=1)
    found = scores.broken("speed", {"source a": fine, "source b": fine.model_copy(update={"bias": -0.21})})
    assert [(one.group, one.statistic, one.value) for one in found] == [("source b", "bias", -0.21)]


def test_row_of_the_answer_keeps_its_own_columns(tmp_path: Path) -> None:
    path = table(tmp_path, "20,GiB,allocated,ok,500,a7,,mine", header=f"{HEADER},predicted", row=ROW)
    (row,) = v.validate([path], estimate=always).rows
    assert (row["id"], row["own_predicted"], row["line"], row["source"]) == ("a7", "mine", 2, "somebody")
    assert row["predicted"]["allocated_gib"] == 20
    assert row["predicted"]["tokens_per_s_high"] == 1250
    assert row["measured"] == {"peak_mem_gib": 20, "mem_kind": "allocated", "outcome": "ok", "tokens_per_s": 500}
    assert row["skipped"] is None
    json.dumps(row)


def test_refusals_are_counted_with_their_line(tmp_path: Path) -> None:
    def no_fact(_: Settings) -> Estimate:
        raise MissingFact("H100-SXM-80GB has no bandwidth figure")

    path = table(tmp_path, "20,GiB,allocated,ok,,a,")
    answered = v.validate([path], estimate=no_fact)
    assert answered.summary.skipped_because == {"H100-SXM-80GB has no bandwidth figure": 1}
    assert answered.rows[0]["predicted"]["allocated_gib"] is None
    bad = table(tmp_path, "20,GiB,allocated,ok,,a,", row=ROW.replace("H100-SXM-80GB", "Z9-1TB"))
    (row,) = v.validate([bad], estimate=always).rows
    assert row["line"] == 2
    assert "Z9-1TB" in row["skipped"]


def test_what_a_row_does_not_state_is_not_predicted(tmp_path: Path) -> None:
    note = "variable length: average 446 tokens per sample as counted"
    row = ROW.replace(",4096,yes,", ",,no,")
    (found,) = v.validate([table(tmp_path, f"20,GiB,allocated,ok,900,a,{note}", row=row)], estimate=always).rows
    assert found["predicted"]["allocated_gib"] is None
    assert found["predicted"]["fits_probability"] is None
    assert found["predicted"]["tokens_per_s"] == 1000
    unnamed = ROW.replace("H100-SXM-80GB", "")
    (found,) = v.validate([table(tmp_path, "20,GiB,allocated,ok,900,a,", row=unnamed)], estimate=always).rows
    assert found["predicted"]["allocated_gib"] == 20
    assert found["predicted"]["tokens_per_s"] is None


def test_capped_lengths_are_predicted_but_not_scored(tmp_path: Path) -> None:
    row = ROW.replace(",4096,yes,", ",4096,no,")
    answered = v.validate([table(tmp_path, "9,GiB,reserved,ok,,a,[cap-seq] lengths vary", row=row)], estimate=always)
    assert answered.rows[0]["predicted"]["reserved_gib"] == 25
    assert answered.summary.memory.all is None


def test_left_out_predicts_each_publication_from_the_others(tmp_path: Path) -> None:
    path = table(tmp_path, "20,GiB,allocated,ok,,a,")
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[1].replace("somebody", "other"), lines[1]]) + "\n", encoding="utf-8")
    asked = v.questions([path])
    found = v.left_out(asked, fit=len, estimate=lambda _, n: answer(allocated=10 * n))
    # "somebody" (two runs) is predicted from one other run, "other" from two
    allocated = [row.estimate.memory.allocated_gib for row in found if row.estimate]
    assert allocated == [10, 20, 10]


SHIPPED = Path(__file__).parents[1] / "runs"
ODD = ["", "0", "-1", "1e400", "nan", "inf", "999999999999", "tp0", "fsdp-tp16-pp999", "zero3", "full", "qdora", "fp8"]
ODD += ["nvfp4", "galore", "attn-qv", ",,,", "eager", "both", "ppo", "T4-16GB", "H100", "deepspeed", "EP 0; VP 0"]
ODD += ["model-parallel degree 0", "[suspect]", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3", "1.5", "\uff11", "no"]


@settings(max_examples=150, deadline=None)
@given(some.data())
def test_no_cell_of_a_row_can_crash_it(data: some.DataObject) -> None:
    path = data.draw(some.sampled_from(sorted(path for path in SHIPPED.glob("*.csv") if "pairs" not in path.name)))
    run = data.draw(some.sampled_from(runs.read(path)))
    words = some.text(some.characters(exclude_characters="/"), max_size=8)  # owner/name would ask the hub
    odd = some.one_of(some.sampled_from(ODD), words)
    changed = data.draw(some.dictionaries(some.sampled_from(sorted(run.columns)), odd, min_size=1, max_size=3))
    row = rows.predict(runs.settings(run.model_copy(update={"columns": run.columns | changed})), estimate_setting)
    json.dumps(row.to_dict(), allow_nan=False)
    assert (row.skipped is None) == (row.estimate is not None)


PAIRS = "source,model,method,precision_a,precision_b,seq_len,micro_batch,n_gpus,gpu_a,gpu_b,speedup_b_over_a,notes"


def pair_table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([PAIRS, *rows]) + "\n", encoding="utf-8")
    return path


def by_card(settings: Settings) -> Estimate:
    """An H100 at 300 tokens/s and an A100 at 150, per GPU."""
    return answer(tokens=(300 if settings.gpu.id.startswith("H100") else 150) * settings.rig.n_gpus)


def test_pairs_are_ratios_per_gpu(tmp_path: Path) -> None:
    path = pair_table(
        tmp_path,
        "x,meta-llama/Llama-2-7b-hf,lora,bf16-true,bf16-true,2048,1,64/32,A100-SXM4-80GB,H100-SXM-80GB,2.5,same",
        "x,meta-llama/Llama-2-7b-hf,full,bf16-true,bf16-true,2048,1/2,8,A100-SXM4-80GB,H100-SXM-80GB,2,NOT IDENTICAL",
        "x,meta-llama/Llama-2-7b-hf,full,bf16-true,bf16-true,2048,1,8,A100-SXM4-80GB,Z9-1TB,2,",
    )
    found = v.pairs(path, estimate=by_card)
    first, second, third = found.rows
    assert first["predicted"]["speedup"] == pytest.approx(2.0)
    # each side's range is a factor sqrt(1.25 / 0.75) around its middle
    assert first["predicted"]["speedup_high"] == pytest.approx(2 * (1.25 / 0.75) ** 0.5)
    assert first["measured"] == {"speedup": 2.5}
    assert (first["comparable"], second["comparable"]) == (True, False)
    assert "Z9-1TB" in third["skipped"]
    assert found.skipped == 1
    assert found.scores["comparable"].median == pytest.approx(1 - 2 / 2.5)
    assert {one.statistic for one in found.broken} == {"median", "p90"}


def test_layout_of_each_side_is_read_from_the_notes(tmp_path: Path) -> None:
    row = (
        "megatron-bridge-performance,meta-llama/Llama-2-70b-hf,full,fp8,fp8,4096,1/2,16/8,H100-SXM-80GB,B200-180GB,2.1,"
        '"best config on each (tp2-pp4-cp1 vs tp1-pp2-cp1, GBS 32 vs 64), not an identical recipe"'
    )
    (pair,) = paired.read(pair_table(tmp_path, row))
    assert isinstance(pair.a, Settings)
    assert isinstance(pair.b, Settings)
    assert (pair.a.strategy.tp, pair.a.strategy.pp, pair.b.strategy.tp, pair.b.strategy.pp) == (2, 4, 1, 2)
    assert (pair.a.rig.n_gpus, pair.b.rig.n_gpus) == (16, 8)
    assert (pair.a.strategy.grad_accum, pair.b.strategy.grad_accum) == (32 // 2, 64 // (2 * 4))
    assert not pair.comparable


def test_nodes_of_each_side_are_read_from_the_notes(tmp_path: Path) -> None:
    row = (
        "mlperf-llama2-70b-lora,meta-llama/Llama-2-70b-hf,lora,fp8,fp8,8192,1,64,L40S-48GB,H100-SXM-80GB,4.6,"
        '"MP degree 8 -> 8, GBS 8 -> 8; 64 GPUs each; 16 PCIe nodes of 4 L40S vs 8 NVLink nodes"'
    )
    (pair,) = paired.read(pair_table(tmp_path, row))
    assert isinstance(pair.a, Settings)
    assert isinstance(pair.b, Settings)
    assert (pair.a.rig.n_nodes, pair.b.rig.n_nodes) == (16, 8)
    assert (pair.a.strategy.tp, pair.a.strategy.cp, pair.a.strategy.grad_accum) == (4, 2, 1)
    assert pair.comparable


def test_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no pair"):
        paired.read(pair_table(tmp_path))
    with pytest.raises(InvalidInput, match="'gpu_a' is missing"):
        paired.read(table(tmp_path, "20,GiB,allocated,ok,,a,"))


def test_every_shipped_pair_is_read_or_refused_with_a_reason() -> None:
    found = paired.read(Path(__file__).parents[1] / "runs" / "speedup_pairs.csv")
    assert len(found) == 201
    assert all(pair.measured for pair in found)
