"""One command's work: predict everything that is shipped, and write the documents that say how well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perrun import validation as checks
from perrun.errors import InvalidInput
from perrun.physics import rules_of_thumb
from perrun.runs import Settings, Skipped
from perrun.validation import tables
from perrun.validation.rivals import Rival
from perrun.validation.rows import Estimator, Row, measured_speed, point, speed_points
from perrun.validation.scores import Point

PAIRS = "speedup_pairs.csv"
LOW_PRECISION = ("fp8", "mxfp8")

# Tokens/s of one GPU from parameters and TFLOPS, as people reckon it.
RULES: dict[str, Callable[[Any, Any], Any]] = {
    "rule TFLOPS / 6N x 0.3": rules_of_thumb.six_n,
    "MFU 0.40": lambda params, tflops: rules_of_thumb.constant_mfu(params, tflops, 0.40),
    "MFU 0.45": lambda params, tflops: rules_of_thumb.constant_mfu(params, tflops, 0.45),
    "MFU 0.50": lambda params, tflops: rules_of_thumb.constant_mfu(params, tflops, 0.50),
}


def shipped_runs(root: Path) -> list[Path]:
    """The tables of measured runs below a checkout. Raises InvalidInput when there are none."""
    found = sorted(path for path in (root / "runs").glob("*.csv") if path.name != PAIRS)
    if not found:
        raise InvalidInput(f"{root / 'runs'} holds no table of runs", expected="a checkout of the repository")
    return found


@dataclass(frozen=True, slots=True)
class Fits:
    """Constants of both laws, fitted on some runs."""

    speed: Any
    memory: dict[str, float]


def fit(seen: list[Settings]) -> Fits:
    """Constants from these runs alone. Raises InvalidInput when they are too few."""
    from perrun.calibration import memory as memory_fit
    from perrun.calibration import speed as speed_fit

    memory = {row.parameter: row.value for row in memory_fit.calibrate(seen)}
    return Fits(speed_fit.fit(seen).calibration, memory)


def left_out(asked: Sequence[Settings | Skipped]) -> list[Row]:
    """The questions as answered by laws that never saw their publication."""
    from perrun.estimator import estimate_setting

    return checks.left_out(asked, fit, lambda one, fits: estimate_setting(one, fits.speed, fits.memory))


def validate_left_out(paths: Sequence[Path]) -> checks.ValidateAnswer:
    """As `validate`, each publication predicted by laws that were fitted without it."""
    found = left_out(checks.questions(paths))
    return checks.ValidateAnswer(rows=[row.to_dict() for row in found], summary=checks.summary(found))


def _tflops(question: Settings) -> float | None:
    """Dense rate that the job's precision runs at; None when the card's row has none."""
    precision = question.setting.precision
    if precision == "nvfp4":
        return question.gpu.fp4_dense_tflops
    return question.gpu.fp8_dense_tflops if precision in LOW_PRECISION else question.gpu.bf16_dense_tflops


def rules(found: Sequence[Row]) -> list[Rival]:
    """The rules of thumb as rivals on every scored speed."""
    return [_rule(name, rule, found) for name, rule in RULES.items()]


def _rule(name: str, rule: Callable[[Any, Any], Any], found: Sequence[Row]) -> Rival:
    theirs: list[Point] = []
    ours: list[Point] = []
    for row in found:
        if row.question is None or row.estimate is None:
            continue
        value, tflops = measured_speed(row.question), _tflops(row.question)
        if value is None or tflops is None:
            continue
        said = float(rule(row.question.model.shape.active_params, tflops)) * row.question.rig.n_gpus
        theirs.append(point(row.question, "tokens/s", said, value, said, said))
        ours += speed_points(row)
    return Rival(name, "", "", "speed", tuple(theirs), tuple(ours))


def publish(
    root: Path,
    *,
    estimate: Estimator | None = None,
    outside: Callable[[Sequence[Settings | Skipped]], list[Row]] = left_out,
) -> list[Path]:
    """Writes docs/accuracy.md, docs/accuracy.svg and README.md's table of a checkout; returns what was written.

    outside: predicts the shipped runs by laws that never saw their publication.
    """
    asked = checks.questions(shipped_runs(root))
    inside = checks.evaluate(asked, estimate)
    answered = [*tables.answered(root, inside), *rules(inside)]
    ranked = sorted(answered, key=lambda rival: rival.score.median if rival.score else 0)
    paired = checks.pairs(root / "runs" / PAIRS, estimate=estimate)
    report = tables.Report(inside, outside(asked), ranked)
    found = tables.Pairs(paired.scores, paired.by_gpus, paired.break_even)
    return tables.write(root, report, checks.summary(inside).outcomes, found)
