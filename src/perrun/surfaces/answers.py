"""The verbs as REST and MCP offer them: one table, from which routes and tools are made.

Nothing that a client sends becomes a path, a command or a request to another machine: models are named by the table
or given whole, prices are the server's own.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, get_type_hints

from pydantic import BaseModel, Field, create_model
from pydantic_core import to_json

from perrun import verbs
from perrun.errors import InvalidInput, UnknownName
from perrun.facts import gpus, models
from perrun.facts.hub import from_config
from perrun.prices import desk, freshness
from perrun.prices.market import Market
from perrun.prices.quote import Quote
from perrun.surfaces import requests as asked
from perrun.surfaces.cli.options import as_command
from perrun.surfaces.days import dated
from perrun.terms import GPU, Comparison, Estimate, FitAnswer, PlanAnswer, Rig

MOST_CONFIG_BYTES = 256 * 1024  # the largest published config.json is 60 kB


class AskAnswer(PlanAnswer):
    """A plan, and how the text was read."""

    understood: list[str] = Field(description="what each word was read as")
    command: str = Field(description="the same as flags of the command line")


def _row(name: str, kind: type, doc: str, **more: Any) -> type[BaseModel]:
    """The answer type of a plain row, from its annotations."""
    fields: dict[str, Any] = {field: (hint, ...) for field, hint in get_type_hints(kind).items()}
    return create_model(name, __doc__=doc, **fields, **more)


PriceSeen = _row("PriceSeen", Quote, "One price of one machine as one source saw it on one day.")
AgedPrice = _row("AgedPrice", Quote, "The same with its age.", age_days=(int, ...))
MarketRow = _row("MarketRow", Market, "Prices per GPU-hour of one card and term [USD].", age_days=(int, ...))


def _given(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A name for a config.json that nothing else has, and the config. Raises InvalidInput for one that is too large."""
    text = json.dumps(config, sort_keys=True, default=str)
    if len(text) > MOST_CONFIG_BYTES:
        raise InvalidInput(f"the config has {len(text)} bytes", expected=f"at most {MOST_CONFIG_BYTES}")
    return f"config.json {hashlib.sha256(text.encode()).hexdigest()[:12]}", config


def _of_model(request: asked.OfModel, answer: Callable[[str, dict[str, Any], dict[str, Any]], Any]) -> Any:
    """Asks `answer` with the model's name, the job and the strategy as plain values, where names reach no disk."""
    job, strategy = (_said(one) for one in (request.job, request.strategy))
    if isinstance(request.model, str):
        with models.only({}):
            return answer(request.model, job, strategy)
    name, config = _given(request.model)
    with models.only({name: from_config(config, name)}):
        return answer(name, job, strategy)


def _said(one: BaseModel | None) -> dict[str, Any]:
    return one.model_dump(exclude_none=True) if one else {}


def day(text: str | None) -> date | None:
    """Raises InvalidInput for what is no day of the calendar."""
    return dated(text or None, f"{text!r} is no date")


def _rig(given: asked.RigAsked) -> Rig:
    return Rig.model_validate(given.model_dump() | {"gpu": gpus.get(given.gpu).id})


def plan(request: asked.PlanAsked) -> PlanAnswer:
    wish = {name: getattr(request, name) for name in asked.Wishes.model_fields if name != "as_of"}
    wish |= {name: tuple(wish[name]) for name in ("providers", "regions", "terms")}
    wish["gpus"] = tuple(card for name in request.gpus for card in gpus.meant(name))
    known_on = day(request.as_of)
    return _of_model(request, lambda name, job, fixed: verbs.plan(name, job, fixed, as_of=known_on, **wish))


def estimate(request: asked.EstimateAsked) -> Estimate:
    return _of_model(request, lambda name, job, fixed: verbs.estimate(name, _rig(request.rig), job, fixed))


def largest(request: asked.LargestAsked) -> dict[str, int]:
    def found(name: str, job: dict[str, Any], fixed: dict[str, Any]) -> int:
        return verbs.largest(request.what, name, _rig(request.rig), job, fixed)

    return {request.what: _of_model(request, found)}


def fit(request: asked.FitAsked) -> FitAnswer:
    return _of_model(request, lambda name, job, fixed: verbs.fit(name, job, fixed, rigs=request.rigs))


def compare(request: asked.CompareAsked) -> Comparison:
    more = request.model_dump(exclude={"model", "job", "strategy", "gpu_a", "gpu_b"})

    def found(name: str, job: dict[str, Any], fixed: dict[str, Any]) -> Comparison:
        return verbs.compare(name, request.gpu_a, request.gpu_b, job, fixed, **more)

    return _of_model(request, found)


def ask(request: asked.AskAsked) -> AskAnswer:
    read = verbs.understood(request.text)
    wish: dict[str, Any] = {"limit": request.limit, **read.wish}
    with models.only({}):
        answer = verbs.plan(read.model, read.job, read.strategy, **wish)
    return AskAnswer.model_construct(None, understood=read.understood, command=as_command(read), **dict(answer))


def _filter(request: asked.OffersAsked) -> desk.Filter:
    lists = {name: tuple(getattr(request, name)) for name in asked.OffersAsked.model_fields if name != "n_gpus"}
    return desk.Filter(**lists, n_gpus=request.n_gpus)


def prices(request: asked.PricesAsked) -> list[dict[str, Any]]:
    known_on = day(request.as_of)
    with desk.opened() as book:
        found = desk.find(book, _filter(request), known_on)
    return [one._asdict() | {"age_days": freshness.age_days(one.observed_at, known_on)} for one in found]


def market(request: asked.MarketAsked) -> list[dict[str, Any]]:
    known_on = day(request.as_of)
    with desk.opened() as book:
        found = desk.markets(book, _filter(request), known_on)
    return [asdict(one) | {"age_days": freshness.age_days(one.newest, known_on)} for one in found]


def history(request: asked.HistoryAsked) -> list[dict[str, Any]]:
    with desk.opened() as book:
        return [one._asdict() for one in desk.history(book, _filter(request), day(request.since))]


def known_gpus(request: asked.GpusAsked) -> GPU | list[GPU]:
    return gpus.get(request.name) if request.name else list(gpus.all_gpus())


def known_models(request: asked.ModelsAsked) -> list[dict[str, str]]:
    rows = [row for row in models.rows() if request.filter.lower() in row["id"].lower()]
    if not rows:
        raise UnknownName(f"no known model has {request.filter!r} in its id", hint="any other by its config.json")
    return rows


def schema(request: asked.SchemaAsked) -> dict[str, Any]:
    return verbs.schema(request.name)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it takes and gives, how it is answered, and what of the answer is said in one line."""

    name: str
    asks: type[asked.Asked]
    answers: Any
    answer: Callable[[Any], Any]
    said: Callable[[Any], str]
    path: str = ""  # of the route, below /v1
    of_prices: bool = False  # changes only when prices do: gets an ETag

    @property
    def reads(self) -> bool:
        """Whether it only looks something up: GET with a query, else POST with a body."""
        return not issubclass(self.asks, asked.Strict)

    @property
    def help(self) -> str:
        return (self.asks.__doc__ or "").strip()


def _rows_said(what: str) -> Callable[[list[Any]], str]:
    return lambda rows: f"{len(rows)} {what}"


def _estimate_said(found: Estimate) -> str:
    memory = found.memory
    return found.why_not or (
        f"fits with {found.fits_probability:.0%}: {memory.device_gib:.1f} GiB "
        f"({memory.low_gib:.1f}-{memory.high_gib:.1f}), {found.tokens_per_s:,.0f} tokens/s "
        f"({found.tokens_per_s_low:,.0f}-{found.tokens_per_s_high:,.0f})"
    )


def _fit_said(found: FitAnswer) -> str:
    lines = [f"{cell.rig}: {cell.method}" for cell in found.cells if cell.mark == "yes"]
    return "fits: " + "; ".join(lines) if lines else "no method fits on any of these rigs"


def _verdict_said(found: PlanAnswer | Comparison) -> str:
    return f"{found.verdict} {found.prices_age}".strip()


def _largest_said(found: dict[str, int]) -> str:
    return ", ".join(f"largest {what}: {value}" for what, value in found.items())


def _schema_said(found: dict[str, Any]) -> str:
    return f"JSON Schema of {found.get('title', 'an answer')}"


def _gpus_said(found: GPU | list[GPU]) -> str:
    return gpus.describe(found) if isinstance(found, GPU) else f"{len(found)} cards"


VERBS: tuple[Verb, ...] = (
    Verb("plan", asked.PlanAsked, PlanAnswer, plan, _verdict_said),
    Verb("estimate", asked.EstimateAsked, Estimate, estimate, _estimate_said),
    Verb("fit", asked.FitAsked, FitAnswer, fit, _fit_said),
    Verb("compare", asked.CompareAsked, Comparison, compare, _verdict_said),
    Verb("largest", asked.LargestAsked, dict[str, int], largest, _largest_said),
    Verb("ask", asked.AskAsked, AskAnswer, ask, _verdict_said),
    Verb("prices", asked.PricesAsked, list[AgedPrice], prices, _rows_said("offers"), of_prices=True),
    Verb("market", asked.MarketAsked, list[MarketRow], market, _rows_said("cards and terms"), "prices/market", True),
    Verb("history", asked.HistoryAsked, list[PriceSeen], history, _rows_said("prices"), "prices/history", True),
    Verb("gpus", asked.GpusAsked, GPU | list[GPU], known_gpus, _gpus_said),
    Verb("models", asked.ModelsAsked, list[dict[str, str]], known_models, _rows_said("models")),
    Verb("schema", asked.SchemaAsked, dict[str, Any], schema, _schema_said),
)


def as_json(answer: Any) -> bytes:
    """An answer as JSON, with the same values as `perrun ... --json`."""
    if isinstance(answer, BaseModel):
        return answer.model_dump_json().encode()
    return to_json(answer)
