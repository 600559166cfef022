"""The Python door: `import perrun` alone gives every verb and noun, and the same answer as the command line."""

import json
import subprocess
import sys

import pytest

import perrun
from perrun.surfaces import cli

JOB = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}


@pytest.mark.parametrize("name", perrun.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(perrun, name).__name__ == name


def test_importing_reads_no_verb() -> None:
    code = "import sys, perrun; assert not {'numpy', 'pydantic', 'perrun.verbs'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="plann"):
        _ = perrun.plann


def test_python_and_command_line_answer_alike(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--method qlora --examples 5000 --tokens 1500 --epochs 3 --limit 5 --json"
    assert cli.run(["plan", "meta-llama/Llama-3.1-8B", *flags.split()]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = perrun.plan("meta-llama/Llama-3.1-8B", JOB, limit=5)
    assert printed == json.loads(answer.model_dump_json(by_alias=True))
