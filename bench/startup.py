"""What a call costs before it says anything: CPU seconds of `perrun --help` and of the main job.

usage: python bench/startup.py [--runs 9]
Prints the median CPU time (user and system, of the child process alone) and its ratio to `python -c pass` in the same
round, so that the ratio holds on a slower machine. Exits 1 past the limits of the project.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PERRUN = str(Path(sys.executable).with_name("perrun"))
JOB = ["meta-llama/Llama-3.1-8B", "--method", "qlora", "--examples", "5000", "--tokens", "1500", "--epochs", "3"]
COMMANDS = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "perrun --help": ([PERRUN, "--help"], 0.2),
    "perrun plan ...": ([PERRUN, "plan", *JOB], 0.5),
    "perrun plan ... --json": ([PERRUN, "plan", *JOB, "--json"], 0.5),
}


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User and system seconds of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(runs: int) -> dict[str, float]:
    """Median CPU seconds by command, byte code already compiled, as after an installation."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": folder, "PERRUN_DATA_DIR": folder}
        taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for round_ in range(runs + 1):  # the first one compiles; commands take turns, so that load hits all alike
            for name, (command, _) in COMMANDS.items():
                seconds = cpu_seconds(command, environment)
                if round_:
                    taken[name].append(seconds)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    found = measure(parser.parse_args().runs)
    base = found["python -c pass"]
    slow = False
    for name, (_, limit) in COMMANDS.items():
        over = limit is not None and found[name] > limit
        slow |= over
        said = "" if limit is None else f"  limit {limit:g} s{': exceeded' if over else ''}"
        print(f"{name:24s} {found[name]:7.3f} s CPU  {found[name] / base:6.1f} x python -c pass{said}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
