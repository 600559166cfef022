"""How many estimates a second on one core: vectorised, one by one, and a rival calculator's rate.

usage: python bench/throughput.py [--n 1000000] [--rival-envs FOLDER]
Prints CPU seconds for a million memory estimates and a million speed estimates, and the same by scalar calls
(extrapolated from 2,000). With --rival-envs also vramcalc's, whose public function is called in an environment of its
own below FOLDER (made where it is missing, see bench/rivals). Exits 1 past the limits of the project.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from perrun import estimator, memory, setting, speed
from perrun.facts import gpus, models, stacks
from perrun.terms import Job, Rig, Strategy

LIMITS = {"memory": 2.0, "speed": 3.0}
MODEL = "meta-llama/Llama-3.1-8B"


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of the best of three runs."""
    taken: list[float] = []
    for _ in range(3):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


RIVALS = Path(__file__).parent / "rivals"
QUESTION = {
    "source": "bench", "line": 1, "memory": True, "n_gpus": 1, "method": "lora", "optimizer": "adamw",
    "precision": "bf16-true", "micro_batch": 4, "seq_len": 2048, "lora_rank": 16, "lora_targets": "attn",
    "checkpointing": "full", "attention": "flash2", "model_type": "llama", "hidden_size": 4096, "layers": 32,
    "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256, "tied": False,
}  # fmt: skip


def rival_seconds(folder: Path) -> float:
    """CPU seconds of one of vramcalc's estimates: of 2,001 questions less those of one."""
    sys.path.insert(0, str(RIVALS))
    from run import RIVALS as KNOWN
    from run import environment

    script, packages, _ = KNOWN["vramcalc"]
    python = environment(folder / "vramcalc", packages)

    def asked(times: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        questions = f"{json.dumps(QUESTION)}\n" * times
        done = subprocess.run([python, RIVALS / script], input=questions, capture_output=True, text=True, check=True)
        assert "refused" not in done.stdout, done.stdout[:200]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return (asked(2001) - asked(1)) / 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--rival-envs", type=Path)
    given = parser.parse_args()
    n = given.n
    random = np.random.default_rng(0)
    model, stack = models.get(MODEL), stacks.get("trl")
    one = setting.of(Job(model=MODEL, method="qlora"), Strategy(), Rig(gpu="H100-SXM-80GB"))
    many = one.with_(
        micro_batch=random.integers(1, 65, n).astype(float),
        seq_len=random.integers(128, 16385, n).astype(float),
        mean_len=random.integers(128, 16385, n).astype(float),
        lora_rank=random.choice([4.0, 8.0, 16.0, 64.0], n),
    )
    card = speed.card(gpus.get("H100-SXM-80GB"), Rig(gpu="H100-SXM-80GB"))
    usable = estimator.usable_gib(gpus.get("H100-SXM-80GB")) * estimator.GIB
    laws: dict[str, Callable[[setting.Setting], object]] = {
        "memory": lambda asked: memory.peak(model.shape, asked, stack),
        "memory, device and fit": lambda asked: estimator.memory_figures(model, asked, stack, usable, None),
        "speed": lambda asked: speed.time_lines(model.shape, asked, card, stack),
    }
    failed = False
    taken: dict[str, float] = {}
    for name, law in laws.items():
        vectorised = cpu(lambda law=law: law(many)) / n * 1e6
        scalar = cpu(lambda law=law: [law(one) for _ in range(2000)]) / 2000 * 1e6
        taken[name] = vectorised
        limit = LIMITS.get(name)
        over = limit is not None and vectorised > limit
        failed |= over
        times = f"{vectorised:6.2f} s a million vectorised, {scalar:8.1f} s one by one: {scalar / vectorised:.0f}x"
        print(f"{name:24s} {times}" + (f" (limit {limit} s{', BROKEN' if over else ''})" if limit else ""))
    if given.rival_envs:
        rival = rival_seconds(given.rival_envs) * 1e6
        print(f"{'vramcalc, memory':24s} {rival:8.1f} s a million: ours is {rival / taken['memory']:.0f}x as fast")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
