"""perrun validate as a command: measured rows in, answers and complaints out."""

import contextlib
import csv
import json
from pathlib import Path

import pytest

from perrun.surfaces.cli import run

SHIPPED = Path(__file__).parents[1] / "runs"
# Mistral 7B, LoRA r16 on attention, 4 x 4096 packed, one A100-80GB: 24.871 GiB allocated, 28.9 on the device,
# 3324.2 tokens/s (fms-acceleration-benchmarks line 34).
MISTRAL = (SHIPPED / "fms-acceleration-benchmarks.csv").read_text(encoding="utf-8").splitlines()[33]
HEADER = (SHIPPED / "fms-acceleration-benchmarks.csv").read_text(encoding="utf-8").splitlines()[0]


def written(tmp_path: Path, *rows: str, header: str = HEADER) -> str:
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


def test_json_of_a_measured_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, f"row-1,{MISTRAL}", header=f"id,{HEADER}")
    assert run(["validate", path, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["rows"]
    assert (row["id"], row["line"], row["skipped"]) == ("row-1", 2, None)
    assert row["predicted"]["allocated_gib"] == pytest.approx(24.871, rel=0.03)
    assert row["predicted"]["device_gib"] == pytest.approx(28.9, rel=0.15)
    # the row measured allocated memory, so that is what the range is of
    assert row["predicted"]["low_gib"] < row["predicted"]["allocated_gib"] < row["predicted"]["high_gib"]
    assert row["predicted"]["fits_probability"] > 0.9
    assert row["predicted"]["tokens_per_s"] == pytest.approx(3324.2, rel=0.15)
    assert row["predicted"]["tokens_per_s_low"] < row["predicted"]["tokens_per_s_high"]
    assert row["measured"]["tokens_per_s"] == pytest.approx(3324.155)
    assert answer["summary"]["predicted"] == 1


def test_bad_rows_are_named_and_the_rest_is_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MISTRAL, MISTRAL.replace("A100-SXM4-80GB", "Z9-1TB"), MISTRAL.replace(",4096,", ",-3,"))
    assert run(["validate", path, "--json"]) == 0
    good, unknown, impossible = json.loads(capsys.readouterr().out)["rows"]
    assert good["skipped"] is None
    assert (unknown["line"], "Z9-1TB" in unknown["skipped"]) == (3, True)
    assert (impossible["line"], "seq_len '-3' is not possible" in impossible["skipped"]) == (4, True)
    assert run(["validate", path]) == 0
    assert "seq_len '-3' is not possible" in capsys.readouterr().out


def test_csv_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MISTRAL, MISTRAL.replace("A100-SXM4-80GB", "Z9-1TB"))
    assert run(["validate", path, "--csv"]) == 0
    good, unknown = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(good["measured_peak_mem_gib"]) == 24.871
    assert float(good["predicted_allocated_gib"]) == pytest.approx(24.871, rel=0.03)
    assert (unknown["line"], unknown["predicted_allocated_gib"], "Z9-1TB" in unknown["skipped"]) == ("3", "", True)


def test_a_wrong_table_is_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MISTRAL, header=HEADER.replace("seq_len", "length"))
    assert run(["validate", path]) == 2
    error = capsys.readouterr().err
    assert "column 'seq_len' is missing" in error
    assert error.count("\n") == 1


def test_past_the_budget_is_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MISTRAL.replace("24.871", "48"))
    with pytest.raises(SystemExit) as stopped:
        run(["validate", path])
    assert stopped.value.code == 1
    assert "over budget: memory allocated median" in capsys.readouterr().err


def test_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (SHIPPED / "speedup_pairs.csv").read_text(encoding="utf-8").splitlines()
    # mpt-13b, full, bf16, 10 x 4096 tokens, 8 GPUs: 16482 tokens/s on A100s, 37740 on H100s
    row = next(line for line in lines if "mpt-13b,full,bf16-mixed,bf16-mixed,4096,10,8" in line)
    path = tmp_path / "pairs.csv"
    path.write_text(f"{lines[0]}\n{row}\n{row.replace('H100-SXM-80GB', 'Z9-1TB')}\n", encoding="utf-8")
    with contextlib.suppress(SystemExit):  # one pair may be over the budget of all
        run(["validate", "--pairs", str(path), "--json"])
    found, unknown = json.loads(capsys.readouterr().out)["rows"]
    assert found["measured"]["speedup"] == 2.29
    assert found["predicted"]["speedup"] == pytest.approx(37740 / 16482, rel=0.15)
    assert found["predicted"]["speedup_low"] < found["predicted"]["speedup"] < found["predicted"]["speedup_high"]
    assert (unknown["line"], "Z9-1TB" in unknown["skipped"]) == (3, True)


def test_the_shipped_runs_keep_every_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    code = run(["validate", "--json"])
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["broken"] == []
    assert code == 0
    assert summary["predicted"] > 1400
    assert {"allocated", "reserved", "nvidia-smi"} <= set(summary["memory"]["by_kind"])
