"""Planning a market: CPU seconds and peak memory by the number of (strategy x offer) candidates.

usage: python bench/plan_search.py [--most 10000000] [--rival-envs FOLDER]
Two markets are planned for one full fine-tune of an 8B model, each in a process of its own on one core. In `shared`
many offers sell the same few hundred rigs, as providers and regions do: a rig is searched once and priced many times.
In `own` no two offers sell the same rig (their usable memory differs), so that every candidate goes through all laws.
Beside them stands a plain loop over the same laws, one candidate after the other (extrapolated from 1,000), and with
--rival-envs vramcalc's own function, which answers for memory alone (see bench/rivals). Exits 1 past the limits of the
project: a million candidates in 2 s and 1.5 GB, and no more than linear growth up to ten million.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from itertools import count, cycle, islice, product
from pathlib import Path
from random import Random

MILLION = 1_000_000
SECONDS, GIGABYTES = 2.0, 1.5  # for a million candidates
LINEAR = 1.15  # seconds of ten million over ten times those of one
JOB = {"method": "full", "examples": 20_000, "tokens_per_example": 1000, "seq_len": 2048, "global_batch": 64}
MODEL = "meta-llama/Llama-3.1-8B"
SIZES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 2), (32, 4), (64, 8))


def rigs(own: bool):  # type: ignore[no-untyped-def]
    """Every card that can run the job, in every size; with `own` over and over, each a little different."""
    from perrun import search, verbs
    from perrun.facts import gpus
    from perrun.terms import Rig

    job, model = verbs.job(MODEL, JOB)
    every = [Rig(gpu=gpu.id, n_gpus=n, n_nodes=nodes) for gpu, (n, nodes) in product(gpus.all_gpus(), SIZES)]
    able = search.admit(job, model, {}, every)[0].rigs
    if not own:
        return job, cycle(able)
    usable = {rig: gpus.get(rig.gpu).memory_gib_usable or 0.0 for rig in able}
    return job, (rig.model_copy(update={"usable_gib": usable[rig] + i * 1e-6}) for i in count(1) for rig in able)


def market(candidates: int, own: bool):  # type: ignore[no-untyped-def]
    """(job, offers, candidates): as many offers as have so many candidates together."""
    from perrun.strategies import strategies
    from perrun.terms import Offer

    job, endless = rigs(own)
    random, seen = Random(0), date(2026, 1, 1)
    known: dict[tuple[str, int], int] = {}
    offers, found = [], 0
    for number, rig in zip(count(), endless):
        if found >= candidates:
            break
        size = (rig.gpu, rig.n_gpus)
        if size not in known:
            known[size] = sum(1 for _ in strategies(job, rig))
        found += known[size]
        price = rig.n_gpus * random.uniform(0.3, 8.0)
        offers.append(Offer(provider=f"p{number % 40}", usd_per_hour=price, rig=rig, observed_at=seen, source="bench"))
    return job, offers, found


def measure(candidates: int, own: bool) -> None:
    """Plans one market and prints what it took as JSON."""
    from perrun import planner

    job, offers, found = market(candidates, own)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    answer = planner.plan(job, offers, planner.Wish(limit=20))
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert answer.plans
    told = {"candidates": found, "offers": len(offers), "rigs": len({offer.rig for offer in offers})}
    print(json.dumps({**told, "seconds": seconds, "gb": peak * 1024 / 1e9, "offers_gb": before * 1024 / 1e9}))


def in_its_own_process(candidates: int, own: bool) -> dict[str, float]:
    """The best of three runs."""
    one_core = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", str(candidates), *(["--own"] if own else [])]
    found = [
        json.loads(subprocess.run(command, env=one_core, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return min(found, key=lambda one: one["seconds"])


def one_by_one(number: int = 1000) -> float:
    """CPU seconds of one candidate in a plain loop: its estimate and its bill by the same laws."""
    from perrun import cost, estimator
    from perrun.facts import models
    from perrun.strategies import strategies

    job, offers, _ = market(MILLION, own=False)
    model = models.get(MODEL)

    def every() -> Iterator[tuple[object, object]]:
        for offer in Random(1).sample(offers, len(offers)):
            for strategy in strategies(job, offer.rig):
                yield offer, strategy

    chosen = list(islice(every(), number))
    started = time.process_time()
    best = float("inf")
    for offer, strategy in chosen:
        figures = estimator.figures(estimator.ask(job, strategy, offer.rig, model))
        hours = job.tokens / float(figures.tokens_per_s) / 3600
        usd = float(cost.totals(hours, job, model, [offer])[0])
        if float(figures.fits) >= 0.9:
            best = min(best, usd)
    return (time.process_time() - started) / number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10 * MILLION)
    parser.add_argument("--rival-envs", type=Path)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.own)
        return 0
    broken: list[str] = []
    for name, own in (("shared", False), ("own", True)):
        taken: dict[int, dict[str, float]] = {}
        for size in dict.fromkeys((MILLION // 10, MILLION, given.most)):
            one = taken[size] = in_its_own_process(size, own)
            rate = one["candidates"] / one["seconds"]
            print(
                f"{name:7s} {one['candidates']:11,.0f} candidates, {one['offers']:7,.0f} offers of {one['rigs']:7,.0f} "
                f"rigs: {one['seconds']:6.2f} s CPU, {one['gb']:.2f} GB at the peak ({one['offers_gb']:.2f} before), "
                f"{rate:12,.0f} a second"
            )
        million, most = taken[MILLION], taken[given.most]
        grown = most["seconds"] / million["seconds"] / (most["candidates"] / million["candidates"])
        print(f"{name:7s} {most['candidates']:11,.0f} candidates take {grown:.2f} times what linear growth would")
        for what, value, limit in (
            ("seconds of a million", million["seconds"], SECONDS),
            ("GB of a million", million["gb"], GIGABYTES),
            ("growth", grown, LINEAR),
        ):
            if value > limit:
                broken.append(f"{name}: {what} {value:.2f}, limit {limit:g}")
    each = one_by_one()
    print(f"{'loop':7s} {1 / each:,.0f} a second: the same laws, one candidate after the other")
    if given.rival_envs:
        from throughput import rival_seconds

        print(f"{'rival':7s} {1 / rival_seconds(given.rival_envs):,.0f} a second: vramcalc, memory alone")
    for line in broken:
        print(f"BROKEN {line}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
