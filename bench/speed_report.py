"""Accuracy of speed with the publication left out, beside rules of thumb; pairs as ratios.

usage: python bench/speed_report.py [--worst N] [--json FILE]
Every run is predicted by the fit that saw no run of its publication. Exits 1 when the median is above 10 % or the 90th
percentile above 30 %.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from perrun import runs, speed
from perrun.calibration import speed as calibration
from perrun.errors import PerrunError
from perrun.physics import rules_of_thumb
from perrun.runs import Settings
from perrun.validation import paired

RUNS = Path(__file__).parents[1] / "runs"
PAIRS = "speedup_pairs"
MEDIAN, P90 = 0.10, 0.30
Array = np.ndarray
GROUPS: dict[str, Callable[[Settings], str]] = {
    "publication": lambda asked: asked.run.source,
    "method": lambda asked: asked.setting.method,
    "precision": lambda asked: asked.setting.precision,
    "GPU": lambda asked: asked.gpu.id,
    "framework": lambda asked: asked.setting.framework,
    "nodes": lambda asked: "one" if asked.setting.n_nodes == 1 else "several",
    "mixture of experts": lambda asked: (
        "yes" if asked.model.shape.active_params < asked.model.shape.text_params else "no"
    ),
}


def rivals(data: calibration.Data) -> dict[str, Array]:
    """Log of predicted over measured tokens/s by rules of thumb, from the same rows."""
    rows = [
        (q.model.shape.text_params, q.gpu.bf16_dense_tflops or q.gpu.fp16_dense_tflops, q.rig.n_gpus)
        for q in data.questions
    ]
    params, tflops, n_gpus = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    rules = {"6N x 0.3": rules_of_thumb.six_n(params, tflops)}
    rules |= {f"MFU {mfu}": rules_of_thumb.constant_mfu(params, tflops, mfu) for mfu in (0.4, 0.45, 0.5)}
    return {name: np.log(value * n_gpus / data.measured) for name, value in rules.items()}


def line(name: str, residual: Array) -> str:
    error = np.abs(np.expm1(residual))
    bias = np.expm1(np.median(residual))
    return f"  {name:34s} {len(error):5d} {np.median(error):8.1%} {np.quantile(error, 0.9):8.1%} {bias:+8.1%}"


def tables(found: calibration.Fit) -> None:
    print(f"  {'':34s} {'n':>5s} {'median':>8s} {'p90':>8s} {'bias':>8s}")
    print(line("perrun, publication left out", found.left_out))
    print(line("perrun, all runs seen", calibration.residuals(found.data, found.calibration.law)))
    for name, residual in rivals(found.data).items():
        print(line(name, residual))
    for title, key in GROUPS.items():
        names = np.array([key(asked) for asked in found.data.questions])
        print(f"by {title}, publication left out")
        for name in sorted(set(names.tolist())):
            print(line(name, found.left_out[names == name]))


def per_gpu(asked: Settings, fit: speed.Calibration) -> float:
    lines = speed.time_lines(
        asked.model.shape,
        asked.setting,
        speed.card(asked.gpu, asked.rig),
        asked.stack,
        fit,
        asked.stored_quantization,
    )
    return float(speed.tokens_per_s(asked.setting, sum(lines.values()))) / asked.rig.n_gpus


def pairs(fit: speed.Calibration) -> None:
    """Predicted over measured speed-ups, by the fit of all runs."""
    found: dict[str, list[float]] = {"one recipe": [], "not one recipe": []}
    for pair in paired.read(RUNS / f"{PAIRS}.csv"):
        if not (isinstance(pair.a, Settings) and isinstance(pair.b, Settings) and pair.measured):
            continue
        try:
            ratio = per_gpu(pair.b, fit) / per_gpu(pair.a, fit)
        except PerrunError:
            continue
        found["one recipe" if pair.comparable else "not one recipe"].append(np.log(ratio / pair.measured))
    print("pairs")
    for name, residual in found.items():
        print(line(name, np.array(residual)))


def worst(found: calibration.Fit, n: int) -> None:
    print("worst, publication left out: predicted over measured")
    for i in np.argsort(-np.abs(found.left_out))[:n]:
        asked = found.data.questions[i]
        print(
            f"  {np.exp(found.left_out[i]):5.2f} {asked.run.source} line {asked.run.line} "
            f"{asked.model.id} {asked.gpu.id}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write source, line, log ratio of every run here")
    asked = parser.parse_args()
    paths = [path for path in sorted(RUNS.glob("*.csv")) if path.stem != PAIRS]
    found = calibration.fit(run for path in paths for run in runs.read(path))
    tables(found)
    pairs(found.calibration)
    worst(found, asked.worst)
    if asked.json:
        rows = [
            {"source": q.run.source, "line": q.run.line, "log_ratio": round(float(r), 4)}
            for q, r in zip(found.data.questions, found.left_out, strict=True)
        ]
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    error = np.abs(np.expm1(found.left_out))
    return int(np.median(error) > MEDIAN or np.quantile(error, 0.9) > P90)


if __name__ == "__main__":
    sys.exit(main())
