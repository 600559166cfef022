"""Predicted against measured: every shipped or given run, predicted from its settings alone."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from perrun import runs
from perrun.runs import Settings, Skipped
from perrun.terms import Estimate, Noun
from perrun.validation import breakeven
from perrun.validation import paired as _paired
from perrun.validation import rows as _rows
from perrun.validation import scores as _scores
from perrun.validation.breakeven import BreakEven
from perrun.validation.rows import Estimator, Row
from perrun.validation.scores import Broken, Outcomes, Point, Score

__all__ = [
    "PairsAnswer",
    "Row",
    "Summary",
    "ValidateAnswer",
    "evaluate",
    "left_out",
    "pairs",
    "questions",
    "summary",
    "validate",
]


class MemorySummary(Noun):
    all: Score | None
    by_kind: dict[str, Score] = Field(description="by kind of the published figure")
    by_source: dict[str, Score]
    by_method: dict[str, Score]
    by_gpu: dict[str, Score]


class SpeedSummary(Noun):
    all: Score | None
    by_source: dict[str, Score]
    by_method: dict[str, Score]
    by_gpu: dict[str, Score]
    by_framework: dict[str, Score]


class Summary(Noun):
    """Scores of a validation. Memory of unstated kind is shown but belongs to no total and no budget."""

    rows: int
    predicted: int
    skipped: int
    skipped_because: dict[str, int]
    memory: MemorySummary
    speed: SpeedSummary
    outcomes: Outcomes
    broken: list[Broken] = Field(description="budgets that were not kept")


class ValidateAnswer(Noun):
    rows: list[dict[str, Any]]
    summary: Summary


class PairsAnswer(Noun):
    rows: list[dict[str, Any]]
    scores: dict[str, Score] = Field(description="comparable pairs, and those that the notes call no single recipe")
    by_gpus: dict[str, Score]
    break_even: BreakEven | None
    skipped: int
    broken: list[Broken]


def questions(paths: Iterable[str | Path]) -> list[Settings | Skipped]:
    """The rows of some files as questions. Raises InvalidInput for a file that is no table of runs."""
    return [runs.settings(run) for path in paths for run in runs.read(path)]


def _shipped_estimate() -> Estimator:
    from perrun.estimator import estimate_setting

    return estimate_setting


def evaluate(asked: Sequence[Settings | Skipped], estimate: Estimator | None = None) -> list[Row]:
    """Each question beside its prediction."""
    predict = estimate or _shipped_estimate()
    return [_rows.predict(question, predict) for question in asked]


def left_out(
    asked: Sequence[Settings | Skipped],
    fit: Callable[[list[Settings]], Any],
    estimate: Callable[[Settings, Any], Estimate],
) -> list[Row]:
    """Each question beside the prediction of laws that were fitted without its publication.

    fit: the fitted parameters from some runs; estimate: the prediction of a run with such parameters.
    A publication that has no scored figure leaves the fit as it is.
    """
    known = [q for q in asked if isinstance(q, Settings)]
    scored = {q.run.source for q in known if _rows.measured_memory(q) or _rows.measured_speed(q)}
    fitted = {source: fit([q for q in known if q.run.source != source]) for source in sorted(scored)}
    rest = {q.run.source for q in known} - scored
    fitted |= dict.fromkeys(rest, fit(known) if rest else None)
    return [_rows.predict(q, lambda s: estimate(s, fitted[s.run.source])) for q in asked]


def summary(found: Sequence[Row]) -> Summary:
    """Scores by source, method, GPU, framework and kind of memory, and the budgets that they break."""
    memory = [point for row in found for point in _rows.memory_points(row)]
    known = [point for point in memory if point.kind != "unknown"]
    speed = [point for row in found for point in _rows.speed_points(row)]
    outcome = _scores.outcomes(pair for row in found for pair in _rows.outcome(row))
    by_kind = _scores.by(memory, lambda point: point.kind)
    skipped = [row.skipped for row in found if row.skipped]
    by_publication = _scores.by(speed, lambda point: _scores.SOURCE + point.source)
    all_memory, all_speed = _scores.score(known), _scores.score(speed)
    return Summary(
        rows=len(found),
        predicted=len(found) - len(skipped),
        skipped=len(skipped),
        skipped_because=dict(sorted(((reason, skipped.count(reason)) for reason in set(skipped)), key=lambda x: -x[1])),
        memory=MemorySummary(
            all=all_memory,
            by_kind=by_kind,
            by_source=_scores.by(known, lambda point: point.source),
            by_method=_scores.by(known, lambda point: point.method),
            by_gpu=_scores.by(known, lambda point: point.gpu),
        ),
        speed=SpeedSummary(
            all=all_speed,
            by_source=_scores.by(speed, lambda point: point.source),
            by_method=_scores.by(speed, lambda point: point.method),
            by_gpu=_scores.by(speed, lambda point: point.gpu),
            by_framework=_scores.by(speed, lambda point: point.framework),
        ),
        outcomes=outcome,
        broken=_scores.broken("memory", by_kind | {"all": all_memory})
        + _scores.broken("speed", {"all": all_speed} | by_publication)
        + _scores.broken("outcome", {"all": outcome}),
    )


def validate(paths: Iterable[str | Path], *, estimate: Estimator | None = None) -> ValidateAnswer:
    """Predict every row of the files from its settings alone, and score.

    Raises InvalidInput for a file that is no table of runs; a row that cannot be predicted says why in `skipped`.
    """
    found = evaluate(questions(paths), estimate)
    return ValidateAnswer(rows=[row.to_dict() for row in found], summary=summary(found))


def pairs(path: str | Path, *, estimate: Estimator | None = None) -> PairsAnswer:
    """Predict the speed-up of every pair of a table, and score. Raises InvalidInput for a file that is none."""
    predict = estimate or _shipped_estimate()
    scored = [_paired.score_pair(pair, lambda a, b: _paired.ratio(a, b, predict)) for pair in _paired.read(path)]
    points: list[Point] = [point for _, point in scored if point]
    scores = _scores.by(points, lambda point: point.kind)
    advice = breakeven.score((row, point) for row, point in scored if point and row["comparable"])
    return PairsAnswer(
        rows=[row for row, _ in scored],
        scores=scores,
        by_gpus=_scores.by(points, lambda point: point.gpu),
        break_even=advice,
        skipped=sum(1 for _, point in scored if point is None),
        broken=_scores.broken("pairs", {**scores, "break-even": advice}),
    )
