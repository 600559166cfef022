"""The other commands on real models: estimate, gpus, models, schema, rules; every form of output; exit codes."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from perrun import terms
from perrun.surfaces import cli

LLAMA = "meta-llama/Llama-3.1-8B"
CONFIGS = Path(__file__).parent / "data" / "configs"
MODELS = (
    (LLAMA, "l4"),
    ("meta-llama/Llama-3.1-70B", "h100-sxm"),
    ("Qwen/Qwen2.5-32B", "l40s"),
    ("mistralai/Mixtral-8x7B-v0.1", "h200-sxm"),
    ("Qwen/Qwen3-30B-A3B", "a100-sxm4-80gb"),
    ("google/gemma-3-27b-pt", "l40s"),
    (str(CONFIGS / "Qwen__Qwen3-8B.json"), "4090"),
)


@pytest.fixture(autouse=True)
def _no_book(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))


def out(capsys, *arguments, code=0):
    assert cli.run(list(arguments)) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(("model", "gpu"), MODELS)
def test_an_estimate_keeps_its_schema_and_its_lines_sum(capsys, model, gpu):
    schema = json.loads(out(capsys, "schema", "estimate"))
    answer = json.loads(out(capsys, "estimate", model, "--gpu", gpu, "--method", "qlora", "--json"))
    jsonschema.validate(answer, schema)
    assert answer["memory"]["device_gib"] == pytest.approx(sum(answer["memory"]["lines"].values()), rel=1e-9)
    assert answer["step_s"] == pytest.approx(sum(answer["time_lines"].values()), rel=1e-9)
    # packed: 16 sequences a step, all tokens counted
    assert answer["tokens_per_s"] * answer["step_s"] == pytest.approx(16 * 2048, rel=1e-9)


def test_what_does_not_fit_says_what_would_help(capsys):
    # 8.03B parameters x 2 bytes of weights and as much of gradients alone are 29.9 GiB
    text = out(capsys, "estimate", LLAMA, "--gpu", "l4", "--method", "full")
    assert "needs " in text
    assert ", has 22.5" in text
    assert "No change of strategy makes it fit" in text or "It fits with:" in text
    helped = out(capsys, "estimate", LLAMA, "--gpu", "l4", "--method", "qlora", "--checkpointing", "none")
    assert "It fits with:" in helped
    assert "checkpointing full" in helped


@pytest.mark.parametrize("what", ["seq_len", "micro_batch", "rank"])
def test_the_largest_that_fits(capsys, what):
    call = ("estimate", LLAMA, "--gpu", "l4", "--method", "qlora", "--framework", "unsloth", "--max", what)
    largest = json.loads(out(capsys, *call, "--json"))[what]
    assert out(capsys, *call) == f"largest {what}: {largest}\n"
    assert largest > 0


def test_the_largest_sequence_fits_and_the_next_does_not(capsys):
    def fits(length):
        call = ("estimate", LLAMA, "--gpu", "l4", "--method", "qlora", "--seq-len", str(length), "--json")
        return json.loads(out(capsys, *call))["fits_probability"] >= 0.9

    found = json.loads(out(capsys, "estimate", LLAMA, "--gpu", "l4", "--method", "qlora", "--max", "seq_len", "--json"))
    assert fits(found["seq_len"])
    assert not fits(found["seq_len"] + 64)


def test_gpus_in_four_forms(capsys):
    rows = json.loads(out(capsys, "gpus", "--json"))
    in_csv = list(csv.DictReader(io.StringIO(out(capsys, "gpus", "--csv"))))
    in_markdown = out(capsys, "gpus", "--markdown").splitlines()
    drawn = out(capsys, "gpus").splitlines()
    assert [row["id"] for row in rows] == [row["gpu"] for row in in_csv]
    assert len(in_markdown) == len(drawn) == len(rows) + 2
    for row in rows:
        terms.GPU.model_validate(row)
    for name in ("H100 SXM", "NVIDIA H100 80GB HBM3", "h100-sxm"):
        assert json.loads(out(capsys, "gpus", name, "--json"))["id"] == "H100-SXM-80GB"
    assert json.loads(out(capsys, "gpus", "4090", "--json"))["id"] == "RTX-4090-24GB"


def test_models_known_and_by_their_config(capsys):
    rows = list(csv.DictReader(io.StringIO(out(capsys, "models", "llama-3.1-8b", "--csv"))))
    assert LLAMA in {row["model"] for row in rows}
    assert {row["parameters"] for row in rows if row["model"] == LLAMA} == {"8,030,261,248"}
    read = json.loads(out(capsys, "models", str(CONFIGS / "Qwen__Qwen3-8B.json"), "--json"))
    assert read["model_type"] == "qwen3"
    assert "8,190,735,360" in out(capsys, "models", str(CONFIGS / "Qwen__Qwen3-8B.json"))  # meta device, index.csv


@pytest.mark.parametrize("name", ["plan", "estimate", "job", "strategy", "rig", "offer", "gpu", "run"])
def test_schemas_are_schemas(capsys, name):
    jsonschema.Draft202012Validator.check_schema(json.loads(out(capsys, "schema", name)))


def test_rules_instead_of_our_model(capsys):
    call = ("plan", LLAMA, "--rules", "flops-6n-0.3", "--examples", "5000", "--tokens", "1500", "--epochs", "3")
    rows = {row["gpu"]: row for row in json.loads(out(capsys, *call, "--json"))}
    # page 002 prints $2.73 and 1.01 h for 22.5M tokens of an 8B model on an H100
    assert rows["H100-80GB"]["usd"] == "2.73"
    assert rows["H100-80GB"]["hours"] == "1.01"
    fits = out(capsys, "fit", "meta-llama/Llama-3.1-70B", "--rules", "bytes-per-parameter", "--csv")
    assert [row["rig"] for row in csv.DictReader(io.StringIO(fits)) if row["full_adamw"] == "yes"] == ["8x B200"]


def test_version_help_and_nothing(capsys):
    from perrun import __version__

    assert out(capsys, "--version") == f"perrun {__version__}\n"
    assert out(capsys) == out(capsys, "--help") == out(capsys, "-h") == out(capsys, "help")


def test_a_reader_that_leaves_early_is_no_error():
    perrun = Path(sys.executable).with_name("perrun")
    done = subprocess.run(
        f"{perrun} gpus | head -1", shell=True, capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.startswith("gpu ")
    assert done.stderr == ""


def test_a_terminal_gets_a_table_of_its_width():
    script = "import pty, sys; pty.spawn([sys.argv[1], 'gpus', 'l40s'])"
    perrun = Path(sys.executable).with_name("perrun")
    done = subprocess.run(
        [sys.executable, "-c", script, str(perrun)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "60", "TERM": "xterm"},
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
    assert any("L40S-48GB" in line for line in lines)
    assert max(map(len, lines)) <= 60
