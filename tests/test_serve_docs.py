"""Whatever docs/serve.md prints is run: its requests against a real server, its Python, and what it says of limits."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perrun.surfaces import requests
from perrun.surfaces.answers import VERBS
from perrun.surfaces.rest import Settings, patient
from perrun.surfaces.rest.errors import OF_STATUS, STATUS
from rest import served

PAGE = (Path(__file__).parents[1] / "docs" / "serve.md").read_text()
CURLS = [line for line in PAGE.splitlines() if line.startswith("curl ")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(PERRUN_DATA_DIR=str(tmp_path_factory.mktemp("data"))) as (found, _, _):
        yield found.removeprefix("http://")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize("line", CURLS)
def test_every_request_is_answered(address: str, line: str) -> None:
    command = ["bash", "-c", line.replace("localhost:8000", address)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if "lorra" in line:
        assert done.stdout in PAGE


def test_every_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, {})
    assert capsys.readouterr().out.startswith("Cheapest: ")


def test_the_page_has_every_route_and_every_kind_of_error() -> None:
    for verb in VERBS:
        assert f"/v1/{verb.path or verb.name}`" in PAGE
    for kind in {*STATUS, *OF_STATUS.values()}:
        assert f"`{kind}`" in PAGE


def test_the_limits_are_those_of_the_code() -> None:
    given = Settings()
    limits = next(line for line in PAGE.splitlines() if line.startswith("- Limits:"))
    for said in (
        f"bodies of {given.body_bytes // 1024} KiB",
        f"price files {given.import_bytes // 2**20} MiB",
        f"{given.body_s:g} s to send one",
        f"{patient.HEADERS_S:g} s for headers",
        f"{given.answer_s:g} s to answer",
        f"{requests.MOST_PLANS} plans",
        f"{requests.MOST_RIGS} rigs",
        f"{given.waiting} questions that wait",
    ):
        assert said in limits
