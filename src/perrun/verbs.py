"""The verbs: one public function each, which every surface calls. Plain values in, one noun out."""

from collections.abc import Callable
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput, PerrunError, UnknownName
from perrun.terms import (
    Calibration,
    Comparison,
    Estimate,
    FitAnswer,
    Job,
    JobsAnswer,
    MethodsAnswer,
    Model,
    Offer,
    PlanAnswer,
    Recipe,
    Rig,
    Strategy,
    Varied,
)

if TYPE_CHECKING:
    from perrun.recipes.diff import Change

SHORTEST_CAP = 512
MOST_VARIED = 200  # combinations of one question: each is a plan of its own


def job(model: str, given: dict[str, Any] | None = None) -> tuple[Job, Model]:
    """The job by what the user said, and the model's facts.

    Unless said, rows are capped at the next power of two at or above their mean (at least 512, at most what the
    model can see). Raises what the facts raise, and pydantic's ValidationError for a number out of bounds.
    """
    from perrun.facts import models

    found = models.get(model)
    values = dict(given or {})
    if values.get("method") == "freeze":
        trained = "full, lora, qlora, lora-int8, dora, qdora"
        raise InvalidInput("perrun has no law for method freeze: how many layers train is not said", expected=trained)
    mean, longest = values.get("tokens_per_example"), values.get("longest_example")
    if mean and longest and longest < mean:
        raise InvalidInput(f"longest_example {longest} is below the mean", expected=f"at least {mean} tokens")
    if "seq_len" not in values:
        mean = values.get("longest_example") or values.get("tokens_per_example") or Job.model_fields["seq_len"].default
        cap = max(SHORTEST_CAP, 1 << (max(int(mean), 1) - 1).bit_length())
        sees = found.max_position_embeddings
        values["seq_len"] = min(cap, sees) if sees and mean <= sees else min(cap, 2**24)
    return Job(model=model, **values), found


def layout(asked: Job, rig: Rig, given: dict[str, Any] | None = None) -> Strategy:
    """A strategy for one rig by what the user said, the rest by the stack's profile; the global batch is kept.

    Raises InvalidInput when the ranks and the micro batch do not divide the global batch, and for several GPUs and a
    stack that runs on one.
    """
    from perrun.facts import gpus, layouts, stacks
    from perrun.strategies import kernels

    values = dict(given or {})
    stack = stacks.get(values.get("framework") or "trl")
    values["framework"] = stack.framework
    values.setdefault("attention", kernels(stack, gpus.get(rig.gpu), {})[0])
    values.setdefault("checkpointing", stack.checkpointing)
    values.setdefault("fused_ce", stack.loss == "fused")
    offered = layouts.of(stack.framework).sharding
    if rig.n_gpus > 1 and "sharding" not in values:
        if not offered:
            raise InvalidInput(f"{stack.label} runs on one GPU", hint="--n-gpus 1, or another --framework")
        values["sharding"] = offered[-1]  # what takes the least memory
    copies = rig.n_gpus // (values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1))
    share, rest = divmod(asked.global_batch, max(copies, 1))
    if rest or not share:
        raise InvalidInput(
            f"global_batch {asked.global_batch} cannot be shared evenly by {copies} data-parallel GPUs",
            expected=f"a multiple of {copies}",
        )
    micro = values.setdefault("micro_batch", min(share, 1))
    if share % micro:
        raise InvalidInput(
            f"micro_batch {micro} does not divide the {share} sequences that each GPU has per step",
            expected=", ".join(str(n) for n in range(1, share + 1) if share % n == 0),
        )
    return Strategy(**values, grad_accum=share // micro)


def _checked(given: dict[str, Any] | None) -> dict[str, Any]:
    """What the user fixed of the strategy. Raises pydantic's ValidationError for what no strategy can be."""
    values = dict(given or {})
    Strategy(**values)
    return values


def _check_rig(rig: Rig) -> None:
    """Raises InvalidInput for a link that the card has not."""
    if rig.n_gpus > 1 and rig.interconnect in ("nvlink", "pcie"):
        from perrun.facts import gpus, links

        links.link(gpus.get(rig.gpu), rig.interconnect)


def offers(prices: str | Path | None = None, as_of: date | None = None) -> list[Offer]:
    """Offers of the user's own price file, or of the shipped snapshot as it was known on a day."""
    from perrun.prices import snapshot

    if prices is not None:
        return [o for o in snapshot.load(prices) if as_of is None or o.observed_at <= as_of]
    return list(_current(state_of_prices())) if as_of is None else snapshot.offers(as_of)


def state_of_prices() -> tuple[Any, ...]:
    """Changes whenever the current offers do: what the book last published, by place, time and size."""
    from perrun.prices import place

    file = place.published(place.book_url())
    try:
        seen = file.stat()
    except OSError:
        return (file,)
    return (file, seen.st_mtime_ns, seen.st_size, seen.st_ino)


@lru_cache(1)
def _current(_: tuple[Any, ...]) -> tuple[Offer, ...]:
    """Read once while prices stay: a fifth of the time of a plan that a server is asked for."""
    from perrun.prices import snapshot

    return tuple(snapshot.offers())


def plan(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    prices: str | Path | None = None,
    as_of: date | None = None,
    **wish: Any,
) -> PlanAnswer:
    """Rank what can be bought for a run; `wish` holds the fields of `perrun.planner.Wish` (budget_usd, gpus, ...)."""
    from perrun import planner

    asked, _ = job(model, given)
    known = offers(prices, as_of)
    if as_of is not None and not known:
        raise InvalidInput(f"no price was known on {as_of}", expected="a later day, YYYY-MM-DD")
    return planner.plan(asked, known, planner.Wish(fixed=_checked(strategy), **wish), as_of)


def estimate(
    model: str, rig: Rig, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None
) -> Estimate:
    """Memory, speed and fit of a job on one rig; with what to switch on when it does not fit."""
    from perrun import estimator, remedies

    _check_rig(rig)
    asked, found = job(model, given)
    laid_out = layout(asked, rig, strategy)
    answer = estimator.answer(estimator.ask(asked, laid_out, rig, found))
    if answer.why_not is None:
        return answer
    return answer.model_copy(update={"remedies": remedies.remedies(asked, laid_out, rig, found)})


def fit(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    rigs: list[str] | None = None,
    prices: str | Path | None = None,
) -> FitAnswer:
    """Methods x rigs for a model: what fits, how tightly, and what a run costs there."""
    from perrun import matrix

    asked, found = job(model, given)
    chosen = [matrix.rig_of(text) for text in rigs] if rigs else None
    return matrix.fit(asked, found, offers(prices), chosen, fixed=_checked(strategy))


def largest(
    what: str, model: str, rig: Rig, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None
) -> int:
    """The largest seq_len, micro_batch or rank of the job that fits on the rig."""
    from perrun import remedies

    _check_rig(rig)
    asked, found = job(model, given)
    return remedies.largest(what, asked, layout(asked, rig, strategy), rig, found)


def compare(
    model: str,
    gpu_a: str,
    gpu_b: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    against: dict[str, Any] | None = None,
    n_gpus: int = 1,
    n_nodes: int = 1,
    price_a: float | None = None,
    price_b: float | None = None,
    hours_a: float | None = None,
    hours_b: float | None = None,
    hour_usd: float = 0.0,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> Comparison:
    """The break-even of B over A on one job.

    gpu_a, gpu_b: a card, a rig ('8x H100 SXM'), or an offer ('8x H100 SXM at lambda'); against: settings of the job or
    its layout that are different on B. Prices per GPU-hour as typed, of one provider, or the market's median; hours of
    training as typed, or as predicted. hour_usd: what an hour of waiting is worth.
    """
    from perrun import decide

    if not 0 <= hour_usd < float("inf"):
        raise InvalidInput(f"an hour of waiting is worth ${hour_usd:g}", expected="0 or more")
    other = {"job": dict(given or {}), "strategy": dict(strategy or {})}
    for name, value in (against or {}).items():
        if _home(name) == "wish":
            raise InvalidInput(f"{name} is no setting of a job or its layout", expected="method, seq_len, ...")
        other[_home(name)][name] = value
    asked, found = job(model, given)
    on_b, _ = job(model, other["job"])
    market = decide.Market(offers(prices), term, provider, n_gpus, n_nodes)
    a = decide.choice(gpu_a, asked, found, _checked(strategy), market, price_a, hours_a)
    b = decide.choice(gpu_b, on_b, found, _checked(other["strategy"]), market, price_b, hours_b)
    return decide.compare(a, b, market.offers, hour_usd)


def jobs(
    a: str | None = None,
    b: str | None = None,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    price_a: float | None = None,
    price_b: float | None = None,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> JobsAnswer:
    """Five usual jobs on two cards, an A100 and an H100 unless said, and what to rent for which job.

    given: the data.
    """
    from perrun import decide
    from perrun.decide import usual
    from perrun.facts import gpus

    cards = (gpus.get(a or usual.CARDS[0]).id, gpus.get(b or usual.CARDS[1]).id)
    typed = {card: usd for card, usd in zip(cards, (price_a, price_b), strict=True) if usd is not None}
    market = decide.Market(offers(prices), term, provider, typed=typed)
    found = usual.jobs(job, given or {}, _checked(strategy), cards, market)
    kinds = usual.decisions(job, given or {}, _checked(strategy), list(usual.CANDIDATES), market)
    return found.model_copy(update={"decisions": kinds.decisions})


def decisions(
    cards: list[str] | None = None,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    hour_usd: float = 0.0,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> JobsAnswer:
    """What to rent for each kind of job, among some cards, and why. given: the data."""
    from perrun import decide
    from perrun.decide import usual

    market = decide.Market(offers(prices), term, provider)
    return usual.decisions(job, given or {}, _checked(strategy), cards or list(usual.CANDIDATES), market, hour_usd)


def methods(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    provider: str | None = None,
    prices: str | Path | None = None,
) -> MethodsAnswer:
    """QLoRA, LoRA and full fine-tuning of a model: what each costs per hour of hardware and per run, over the first."""
    from perrun.decide import methods as compared

    asked, found = job(model, given)
    known = [offer for offer in offers(prices) if provider in (None, offer.provider)]
    return compared.methods(asked, found, known, _checked(strategy))


def rules(
    name: str,
    table: str | None = None,
    *,
    page_prices: bool = False,
    provider: str | None = None,
    prices: str | Path | None = None,
) -> list[dict[str, Any]]:
    """A table of a published page once more by our model, at what is on offer, or at the page's own prices."""
    from perrun import rules as published
    from perrun.decide import pages

    if page_prices:
        return pages.table(name, table, job, published.offers(name, date.today()))
    known = [offer for offer in offers(prices) if provider in (None, offer.provider)]
    if not known:
        raise InvalidInput(f"no offer of provider {provider!r}", hint="perrun prices list")
    return pages.table(name, table, job, known)


def calibrate(
    files: list[Path] | None = None, out: Path | None = None, told: Callable[[str], None] | None = None
) -> dict[str, list[Calibration]]:
    """Fit speed and memory on tables of runs; written to calibration.csv and memory_calibration.csv below `out`.

    files: default runs/ of a checkout; told: is called with what happens. A law that has too few runs is left out and
    said. Raises InvalidInput when neither can be fitted, and for a file that is no table of runs.
    """
    from perrun import calibration, runs
    from perrun.calibration import memory, speed
    from perrun.validation import publish

    def say(text: str) -> None:
        if told:
            told(text)

    paths = files or publish.shipped_runs(Path.cwd())
    read = [runs.settings(run) for path in paths for run in runs.read(path)]
    known = [one for one in read if isinstance(one, runs.Settings)]
    laws: dict[str, tuple[Callable[[], list[Calibration]], Callable[[str], str]]] = {
        "calibration": (lambda: speed.fit(read).rows(), speed.source),
        "memory_calibration": (lambda: memory.calibrate(known), lambda _: memory.SOURCE),
    }
    found: dict[str, list[Calibration]] = {}
    refused: list[InvalidInput] = []
    for name, (fit_, source) in laws.items():
        say(f"fitting {name.replace('_', ' of ')}" if "_" in name else "fitting speed")
        try:
            found[name] = fit_()
        except InvalidInput as why:
            refused.append(why)
            say(f"not fitted: {why}")
            continue
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            calibration.write(found[name], source, out / f"{name}.csv")
    if not found:
        raise refused[0]
    return found


def ask(
    text: str, *, prices: str | Path | None = None, as_of: date | None = None, **wish: Any
) -> tuple[list[str], PlanAnswer]:
    """What a short question was read as, word by word, and the plan that answers it.

    wish: fields of `perrun.planner.Wish` beside those that the text says. Raises InvalidInput for words that are not
    understood, and what `plan` raises.
    """
    from perrun import grammar

    asked = grammar.parse(text, {offer.provider for offer in offers(prices, as_of)})
    answer = plan(asked.model, asked.job, asked.strategy, prices=prices, as_of=as_of, **{**wish, **asked.wish})
    return asked.understood, answer


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an answer (plan, estimate, fit, compare) or of a noun. Raises UnknownName."""
    from perrun import terms

    nouns: dict[str, Any] = {
        "plan": terms.PlanAnswer,
        "estimate": terms.Estimate,
        "fit": terms.FitAnswer,
        "compare": terms.Comparison,
        "job": terms.Job,
        "strategy": terms.Strategy,
        "rig": terms.Rig,
        "offer": terms.Offer,
        "gpu": terms.GPU,
        "model": terms.Model,
        "run": terms.Run,
        "calibration": terms.Calibration,
        "source": terms.Source,
    }
    if name.lower() not in nouns:
        raise UnknownName(f"no schema for {name!r}", expected=", ".join(nouns))
    return nouns[name.lower()].model_json_schema()


def alternatives(
    model: str, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None, **more: Any
) -> list[Varied]:
    """Other jobs that the user may accept, each with its best plan; more: as for `plan`. Raises what `job` raises."""
    from perrun import alternatives as others

    asked, _ = job(model, given)
    changes = list(others.alternatives(asked))
    return [_varied(model, given, strategy, change, more, means) for change, means in changes]


def vary(
    model: str,
    axes: dict[str, list[Any]],
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    **more: Any,
) -> list[Varied]:
    """The best plan for every combination of some settings (fields of Job, Strategy or Wish, several values each).

    more: as for `plan`. A combination without a plan says why. Raises InvalidInput for a name that is no setting and
    for more than 200 combinations.
    """
    from itertools import product
    from math import prod

    count = prod(len(values) for values in axes.values())
    if count > MOST_VARIED:
        raise InvalidInput(f"{count} combinations", expected=f"at most {MOST_VARIED}")
    combinations = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    return [_varied(model, given, strategy, change, more) for change in combinations]


def _varied(
    model: str,
    given: dict[str, Any] | None,
    strategy: dict[str, Any] | None,
    change: dict[str, Any],
    more: dict[str, Any],
    means: str = "",
) -> Varied:
    """The best plan after a change, whose fields go where they belong."""
    parts = {"job": dict(given or {}), "strategy": dict(strategy or {}), "wish": dict(more)}
    for name, value in change.items():
        parts[_home(name)][name] = value
    wish: dict[str, Any] = parts["wish"] | {"limit": 1}
    try:
        found = plan(model, parts["job"], parts["strategy"], **wish)
    except PerrunError as why:
        return Varied(change=change, means=means, why_not=why.what)
    return Varied(change=change, means=means, plan=found.plans[0])


def _home(name: str) -> str:
    """Whether a setting is of the job, of the strategy or of the wish. Raises InvalidInput for none of them."""
    from dataclasses import fields

    from perrun.planner import Wish

    homes = {
        "job": set(Job.model_fields) - {"model"},
        "strategy": set(Strategy.model_fields),
        "wish": {field.name for field in fields(Wish)} - {"fixed", "limit"},
    }
    for home, names in homes.items():
        if name in names:
            return home
    every = sorted(name for names in homes.values() for name in names)
    raise InvalidInput(f"{name!r} is no setting", expected=", ".join(every))


def recipe(
    model: str,
    rig: Rig,
    target: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    data: str | None = None,
    steps: int | None = None,
    min_fit: float = 0.9,
) -> Recipe:
    """The files and the command that train a job on a rig with a target's stack, at its fastest strategy that fits."""
    from perrun import recipes
    from perrun.recipes import making

    _check_rig(rig)
    values = dict(given or {})
    if values.get("objective", "sft") not in ("sft", "pretrain"):
        values.setdefault("packing", False)  # pairs and prompts are never packed
    asked, found = job(model, values)
    laid_out = making.strategy(target, asked, found, rig, _checked(strategy), min_fit)
    return recipes.emit(target, asked, laid_out, rig, found, data=data or recipes.DATA, steps=steps)


def diff(
    old: list[Path],
    new: list[Path],
    gpu: str,
    given: dict[str, Any] | None = None,
    *,
    n_gpus: int | None = None,
    n_nodes: int | None = None,
    price: float | None = None,
    prices: str | Path | None = None,
) -> "Change":
    """What a change of a configuration does to memory, hours and dollars on cards of one kind.

    given: fields of the job that no configuration holds (examples, tokens_per_example) or leaves out. n_gpus, n_nodes:
    of both; default: as each says, else one. Raises what reading raises, naming the key.
    """
    from perrun.facts import gpus
    from perrun.recipes import diff as changes
    from perrun.recipes import folder

    card = gpus.get(gpu).id
    versions: list[changes.Laid] = []
    notes: list[str] = []
    for files in (old, new):
        read = folder.together(files)
        rig = Rig(gpu=card, n_gpus=n_gpus or read.n_gpus or 1, n_nodes=n_nodes or read.n_nodes or 1)
        fields, laid_out, said = folder.settings(read, n_gpus)
        values = {**fields, **(given or {})}
        if "model" not in values:
            raise InvalidInput(f"the {read.target} configuration names no model", hint="--model NAME")
        asked, found = job(values.pop("model"), values)
        versions.append((asked, layout(asked, rig, laid_out), rig, found, [*read.unread, *read.unknown]))
        notes += [note for note in said if note not in notes]
    return changes.change(versions[0], versions[1], offers(prices), price, notes)
