"""What other calculators answered to the same measured rows (bench/data/rivals.csv), as points to score."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perrun.runs import Settings
from perrun.validation.rows import COMPARED, Row, measured_memory, measured_speed, memory_points, point, speed_points
from perrun.validation.scores import Point, Score, score


@dataclass(frozen=True, slots=True)
class Rival:
    """One tool's scores, and ours on the rows that it answered."""

    tool: str
    version: str
    date: str
    figure: str
    points: tuple[Point, ...]
    ours: tuple[Point, ...]

    @property
    def score(self) -> Score | None:
        return score(self.points)

    @property
    def ours_there(self) -> Score | None:
        return score(self.ours)


def _memory(question: Settings, answer: dict[str, str]) -> list[Point]:
    """The tool's tensors against the allocator's peak, its whole figure against reserved and nvidia-smi."""
    found: list[Point] = []
    for kind, value in measured_memory(question):
        said = answer["allocated_gib" if COMPARED[kind] == "allocated_gib" else "device_gib"]
        if said and kind != "unknown":
            found.append(point(question, kind, float(said), value, float(said), float(said)))
    return found


def _speed(question: Settings, answer: dict[str, str]) -> list[Point]:
    value, said = measured_speed(question), answer["tokens_per_s"]
    return [point(question, "tokens/s", float(said), value, float(said), float(said))] if said and value else []


def read(path: Path, rows: Sequence[Row]) -> list[Rival]:
    """Every tool of the table that answered a scored row, memory before speed, in order of median error."""
    by_row = {(row.run.source, row.run.line): row for row in rows if row.question and row.estimate}
    tools: dict[str, list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as table:
        for answer in csv.DictReader(table):
            if not answer["refused"]:
                tools.setdefault(answer["tool"], []).append(answer)
    found: list[Rival] = []
    for figure in ("memory", "speed"):
        rivals = [_rival(figure, answers, by_row) for answers in tools.values()]
        answered = [(rival.score, rival) for rival in rivals]
        found += [rival for one, rival in sorted(answered, key=lambda x: x[0].median if x[0] else 0) if one]
    return found


def _rival(figure: str, answers: list[dict[str, str]], by_row: dict[tuple[str, int], Row]) -> Rival:
    theirs: list[Point] = []
    ours: list[Point] = []
    for answer in answers:
        row = by_row.get((answer["source"], int(answer["line"])))
        if row is None or row.question is None:
            continue
        points = _memory(row.question, answer) if figure == "memory" else _speed(row.question, answer)
        theirs += points
        if points:
            mine = memory_points(row) if figure == "memory" else speed_points(row)
            ours += [one for one in mine if one.kind != "unknown"]
    first = answers[0]
    return Rival(first["tool"], first["version"], first["date"], figure, tuple(theirs), tuple(ours))
