"""Ask every rival the same measured rows, each in its own environment, and keep what they answer as data.

Run from the repository: python bench/rivals/run.py [--envs FOLDER] [name ...]
Environments are made with `venv` and pip under FOLDER (default: a temporary one) and reused when they are there.
Writes bench/data/rivals.csv; rows of rivals that were not asked this time are kept.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "bench" / "data" / "rivals.csv"
NO_ANSWER = "RefusalError: no speed"  # a memory calculator that was asked for speed
COLUMNS = ("tool", "version", "date", "source", "line", "allocated_gib", "device_gib", "tokens_per_s", "refused")

# name -> (script, what pip installs, the distribution whose version counts)
RIVALS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "fitcheck-llm": ("ask_fitcheck.py", ("fitcheck-llm==0.3.1",), "fitcheck-llm"),
    "vramcalc": ("ask_vramcalc.py", ("vramcalc==0.1.2",), "vramcalc"),
    "canifinetune": ("ask_canifinetune.py", ("canifinetune==0.4.1",), "canifinetune"),
    "ftuneai": ("ask_ftuneai.py", ("ftuneai==0.4.1",), "ftuneai"),
    "train-in-silence": ("ask_train_in_silence.py", ("train-in-silence==0.1.6",), "train-in-silence"),
    "hf-vram-calc": ("ask_hf_vram_calc.py", ("hf-vram-calc==1.0.9",), "hf-vram-calc"),
    "accelerate": ("ask_accelerate.py", ("accelerate==1.15.0",), "accelerate"),
    "deepspeed": ("ask_deepspeed.py", ("torch", "deepspeed==0.19.8"), "deepspeed"),
    "llm-analysis": ("ask_llm_analysis.py", ("llm-analysis==0.2.2",), "llm-analysis"),
}


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """The Python of an environment that holds the packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def version(python: Path, distribution: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def ask(name: str, folder: Path, questions: str) -> list[dict[str, str]]:
    """The rival's answers as rows of rivals.csv."""
    script, packages, distribution = RIVALS[name]
    python = environment(folder / name, packages)
    command = [python, HERE / script]
    done = subprocess.run(command, input=questions, capture_output=True, text=True, check=True)
    fixed = {"tool": name, "version": version(python, distribution), "date": date.today().isoformat()}
    # Some libraries greet on stdout: only objects are answers.
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    known = [answer for answer in answers if answer.get("refused") != NO_ANSWER]
    return [fixed | {key: _cell(value) for key, value in answer.items()} for answer in known]


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def merged(new: list[dict[str, str]]) -> Iterable[dict[str, str]]:
    """The new rows, and those of rivals that were not asked."""
    asked = {row["tool"] for row in new}
    if DATA.exists():
        with DATA.open(encoding="utf-8", newline="") as old:
            yield from (row for row in csv.DictReader(old) if row["tool"] not in asked)
    yield from new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RIVALS, []], help="rivals to ask (default: all)")
    parser.add_argument("--envs", type=Path, help="folder of the environments")
    options = parser.parse_args()
    tables = sorted(path for path in (ROOT / "runs").glob("*.csv") if path.name != "speedup_pairs.csv")
    questions = subprocess.run(
        [sys.executable, HERE / "questions.py", *tables], check=True, capture_output=True, text=True
    ).stdout
    folder = options.envs or Path(tempfile.mkdtemp(prefix="rivals-"))
    rows = [row for name in options.names or RIVALS for row in ask(name, folder, questions)]
    found = sorted(merged(rows), key=lambda row: (row["tool"], row["source"], int(row["line"])))
    with DATA.open("w", encoding="utf-8", newline="") as new:
        writer = csv.DictWriter(new, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} answers in {DATA}")


if __name__ == "__main__":
    main()
