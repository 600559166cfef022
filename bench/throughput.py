"""How many estimates a second on one core: vectorised, one by one, and a rival's closed form on the same questions.

usage: python bench/throughput.py [--n 1000000]
Prints seconds for n memory estimates and n speed estimates, the same by scalar calls (extrapolated from 2,000), and
Hugging Face's accelerate-style arithmetic in plain Python as the rival's rate. Exits 1 past the limits of the project
(2 s and 3 s a million).
"""

import argparse
import sys
import time
from collections.abc import Callable

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    n = parser.parse_args().n
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
    for name, law in laws.items():
        vectorised = cpu(lambda law=law: law(many)) / n * 1e6
        scalar = cpu(lambda law=law: [law(one) for _ in range(2000)]) / 2000 * 1e6
        limit = LIMITS.get(name)
        over = limit is not None and vectorised > limit
        failed |= over
        times = f"{vectorised:6.2f} s a million vectorised, {scalar:8.1f} s one by one: {scalar / vectorised:.0f}x"
        print(f"{name:24s} {times}" + (f" (limit {limit} s{', BROKEN' if over else ''})" if limit else ""))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
