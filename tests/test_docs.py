"""Whatever the documents print is executed, and what is made from the code is current."""

import importlib.util
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from perrun import terms, verbs
from perrun.surfaces import cli
from perrun.surfaces.cli.options import JOB, STRATEGY

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs")
# Commands that documents show and a test must not run, and why.
NOT_RUN = {
    "prices refresh": "asks the network",
    "prices import": "writes to the user's book",
    "perrun serve": "runs until it is stopped; tests/test_serve_docs.py",
    "perrun mcp": "runs until it is stopped; tests/test_mcp.py",
    "--write-docs": "writes documents",
    "calibrate": "fits for minutes; tests/test_speed_calibrate.py",
    "FILE": "stands for the reader's own file",
    "MODEL": "stands for the reader's own model",
}


def pages() -> list[Path]:
    found = [ROOT / name for name in PAGES]
    return [page for path in found for page in (sorted(path.glob("*.md")) if path.is_dir() else [path])]


def lines_in_blocks(text: str) -> list[str]:
    """Lines inside fenced blocks."""
    inside, found = False, []
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside:
            found.append(line)
    return found


def commands() -> list[tuple[str, str]]:
    """(page, command) of every perrun command in a fenced block."""
    found = []
    for page in pages():
        for line in lines_in_blocks(page.read_text().replace("\\\n", " ")):
            for part in re.split(r"&&|\|", line):
                command = part.strip().removeprefix("$ ").removeprefix(".venv/bin/")
                if command.startswith("perrun "):
                    found.append((page.name, command))
    return found


def generator():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def current() -> dict[str, str]:
    return generator().documents()


@pytest.mark.parametrize("path", ["README.md", "docs/seeds.md", "docs/glossary.md", "docs/guide-deciding.md"])
def test_what_is_made_from_the_code_is_current(path):
    assert current()[path] == (ROOT / path).read_text(), "run: python scripts/docs.py"


@pytest.mark.parametrize(
    ("page", "command"), [(page, line) for page, line in commands() if not any(word in line for word in NOT_RUN)]
)
def test_every_printed_command_runs(page, command, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))
    assert cli.run(shlex.split(command, comments=True)[1:]) == 0, page
    assert capsys.readouterr().out


def test_commands_are_found_at_all():
    found = [command for page, command in commands() if page == "README.md"]
    assert found[0] == generator().FIRST
    assert {command.split()[1] for command in found} >= {"plan", "estimate", "fit", "compare", "validate", "rules"}


def test_links_between_documents_lead_somewhere():
    for page in pages():
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith(("http", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_test_command_is_what_ci_runs():
    assert "bash scripts/test\n" in (ROOT / "README.md").read_text()
    assert "scripts/test" in (ROOT / ".ci" / "run").read_text()
    assert (ROOT / "scripts" / "test").is_file()


def test_every_field_of_every_noun_has_a_meaning():
    nouns = [kind for kind in vars(terms).values() if isinstance(kind, type) and issubclass(kind, terms.Noun)]
    bare = [
        f"{noun.__name__}.{name}" for noun in nouns for name, info in noun.model_fields.items() if not info.description
    ]
    assert bare == []
    listed = set(generator().NOUNS.split())
    assert listed == {noun.__name__ for noun in nouns} - {"Noun"}


def test_every_listed_command_exists_and_explains_itself(capsys):
    assert cli.run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, (module, text) in cli.COMMANDS.items():
        assert importlib.util.find_spec(f"perrun.surfaces.cli.{module}") is not None, name
        assert f"  {name:<10} {text}\n" in listed
        assert cli.run([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"perrun {name}" in shown
        assert "--help" in shown
    assert generator().FIRST in listed


HELP = {flag.field: flag.help for flag in (*JOB, *STRATEGY)}


def test_help_names_every_choice(capsys):
    assert cli.run(["plan", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    fields = {**terms.Job.model_fields, **terms.Strategy.model_fields}
    for field in ("objective", "precision", "optimizer", "checkpointing", "attention", "offload", "sharding"):
        assert set(HELP[field].split(", ")) == set(get_args(fields[field].annotation)), field
        assert HELP[field] in shown


def test_help_and_version_import_nothing_heavy():
    code = "from perrun.surfaces import cli; cli.run(['--help']); import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pydantic", "typer", "rich", "httpx", "perrun.terms"} & set(done.stdout.split())


def test_what_the_guide_concludes_is_what_its_numbers_say():
    """The prose between the outputs of docs/guide-deciding.md."""
    llama, big = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
    data = {"examples": 10_000, "tokens_per_example": 1024, "epochs": 3}
    qlora, lora = {"method": "qlora", **data}, {"method": "lora", **data}
    first = verbs.compare(llama, "A100-SXM4-80GB", "H100-SXM-80GB", qlora, price_a=0.468, price_b=1.68)
    assert first.usd_a < first.usd_b  # the A100 if nobody waits
    assert first.hour_worth is not None
    assert first.hour_worth < 40  # the H100 if somebody does
    assert first.fp8 is not None
    assert first.speedup < first.fp8.speedup < first.price_ratio
    gain = {part: hours / first.b.time_lines[part] for part, hours in first.a.time_lines.items() if hours > 0.01}
    assert max(gain, key=lambda part: gain[part]) == "matrix products"
    rows = verbs.methods(big, {"examples": 2000, "tokens_per_example": 2000, "epochs": 2}).rows
    assert rows[-1].ratio_per_hour > 5 * rows[-1].ratio_per_run  # by the hour far more than by the run
    one, eight = "H100-SXM-80GB at lowcostgpu", "8x H100-SXM-80GB at lowcostgpu"
    third = verbs.compare(llama, one, eight, lora)
    less = {line.name: line.usd for line in third.difference}
    assert third.usd_a < third.usd_b
    assert less["start-up"] > 2 * less["training"] > 0  # the difference is what starts up
    spot = verbs.compare(llama, f"{one} (on-demand)", f"{one} (interruptible)", lora)
    assert spot.usd_b < spot.usd_a
    bill = {line.name: line.usd for line in spot.difference}
    assert bill["saving checkpoints"] + bill["lost work and restarts"] < 0.1  # cents
