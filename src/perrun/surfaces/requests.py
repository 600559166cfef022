"""What a program may ask over REST and MCP: one request type per verb, bounded, without any path of this machine."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from perrun.estimator import MIN_FIT
from perrun.terms import Interconnect, Job, Strategy, Term

MOST_PLANS = 500
MOST_NAMES = 50
MOST_RIGS = 40
SHOWN = 20  # plans, as on the command line

Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="YYYY-MM-DD")]
Dollars = Annotated[float, Field(ge=1e-6, le=1e9)]
Count = Annotated[int, Field(gt=0, le=100_000)]


# Tighter than the nouns, whose laws divide and multiply by these: the smallest float makes infinities, and a whole
# number of JSON has any size.
BOUNDS: dict[str, Any] = {
    "epochs": Field(ge=1e-6),
    "longest_example": Field(le=10**8),
    **dict.fromkeys(("micro_batch", "tp", "pp", "cp", "ep"), Field(le=10**6)),
}


class Asked(BaseModel):
    """Frozen, and an unknown field is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Strict(Asked):
    """For JSON bodies: "5" and true are no numbers."""

    model_config = ConfigDict(strict=True)


def _partly(name: str, noun: type[BaseModel], without: frozenset[str], doc: str) -> type[Strict]:
    """A noun of which any field may be left out: perrun fills it in, as on the command line."""
    fields: dict[str, Any] = {}
    for field, info in noun.model_fields.items():
        if field not in without:
            bounds = [BOUNDS.get(field) or Field(max_length=1000 if info.annotation is str else None)]
            kind: Any = Annotated[(info.annotation, *info.metadata, *bounds)]
            fields[field] = (kind | None, Field(default=None, description=info.description))
    return create_model(name, __base__=Strict, __doc__=doc, **fields)


if TYPE_CHECKING:

    class JobAsked(Strict): ...

    class StrategyAsked(Strict): ...
else:
    JobAsked = _partly("JobAsked", Job, frozenset({"model"}), "What is to be trained; the rest has its default.")
    StrategyAsked = _partly(
        "StrategyAsked", Strategy, frozenset({"grad_accum"}), "What is fixed of the layout; the rest is chosen."
    )


class OfModel(Strict):
    """A question about one job."""

    model: Name | dict[str, Any] = Field(
        description="a known id (or the end of one), or the whole object of a config.json; never a path",
        examples=["meta-llama/Llama-3.1-8B"],
    )
    job: JobAsked | None = Field(default=None, description="what is to be trained")
    strategy: StrategyAsked | None = Field(default=None, description="what is fixed of the layout")


class RigAsked(Strict):
    """What it runs on."""

    gpu: Name = Field(description="the card, as people type it", examples=["H100 SXM"])
    n_gpus: Count = Field(default=1, description="GPUs over all nodes")
    n_nodes: Count = Field(default=1, description="machines")
    interconnect: Interconnect | None = Field(default=None, description="between the GPUs of a node")
    usable_gib: Annotated[float, Field(ge=0.01, le=100_000)] | None = Field(
        default=None, description="free memory [GiB]"
    )
    host_ram_gib: Annotated[float, Field(ge=0.01, le=1e6)] | None = Field(
        default=None, description="RAM of a node [GiB]"
    )
    power_limit_w: Annotated[float, Field(ge=1, le=100_000)] | None = Field(default=None, description="[W]")


class Wishes(Strict):
    """What is wanted of a plan."""

    budget_usd: Dollars | None = Field(default=None, description="dollars for all runs at most")
    deadline_h: Annotated[float, Field(ge=1e-6, le=1e6)] | None = Field(default=None, description="hours at most")
    gpus: Names = Field(default=[], description="only these cards; a name that fits several means all")
    providers: Names = Field(default=[], description="only these providers")
    regions: Names = Field(default=[], description="only these regions")
    terms: Annotated[list[Term], Field(max_length=MOST_NAMES)] = Field(default=[], description="only these terms")
    max_gpus: Count | None = Field(default=None, description="largest rig")
    n_gpus: Count | None = Field(default=None, description="so many GPUs, in the smallest node that holds them")
    keep_days: Annotated[float, Field(ge=0, le=36_500)] = Field(default=0.0, description="days the disk is kept after")
    mtbi_hours: Annotated[float, Field(ge=1e-3, le=1e6)] | None = Field(
        default=None, description="your own mean time between interruptions"
    )
    hour_usd: Annotated[float, Field(ge=0, le=1e9)] = Field(default=0.0, description="worth of an hour of waiting")
    runs: Count = Field(default=1, description="experiments of the same job")
    per_day: Annotated[float, Field(ge=1e-3, le=1e6)] | None = Field(default=None, description="runs started in a day")
    front: bool = Field(default=False, description="only plans that no other beats in dollars, hours and risk")
    min_fit: Annotated[float, Field(ge=0, le=1)] = Field(default=MIN_FIT, description="probability to fit")
    sort: Literal["usd", "hours", "usd_per_million_tokens", "fit", "risk"] = Field(default="usd", description="order")
    limit: Annotated[int, Field(ge=1, le=MOST_PLANS)] = Field(default=SHOWN, description="plans shown")
    as_of: Day | None = Field(default=None, description="prices as known on that day, YYYY-MM-DD")


class PlanAsked(OfModel, Wishes):
    """Rank what can be bought for a run."""


class EstimateAsked(OfModel):
    """Memory, speed and fit of a job on one rig."""

    rig: RigAsked = Field(description="what it runs on")


class LargestAsked(EstimateAsked):
    """The largest seq_len, micro_batch or rank of the job that fits on the rig."""

    what: Literal["seq_len", "micro_batch", "rank"] = Field(description="what is made as large as it goes")


class FitAsked(OfModel):
    """Which methods fit on which rigs, how tightly, and what a run costs there."""

    rigs: Annotated[list[Name], Field(max_length=MOST_RIGS)] = Field(
        default=[], description="rigs as in '8x H100 SXM'; none: the usual ones"
    )


class CompareAsked(OfModel):
    """The break-even of card B over card A on one job."""

    gpu_a: Name = Field(description="card A")
    gpu_b: Name = Field(description="card B")
    n_gpus: Count = Field(default=1, description="GPUs on each side")
    n_nodes: Count = Field(default=1, description="machines on each side")
    price_a: Dollars | None = Field(default=None, description="of A per GPU-hour; none: the market's median [USD]")
    price_b: Dollars | None = Field(default=None, description="of B per GPU-hour; none: the market's median [USD]")
    provider: Name | None = Field(default=None, description="prices of one provider")
    term: Term = Field(default="on-demand", description="how it is bought")


class AskAsked(Strict):
    """A plan by the short form that people type."""

    text: Annotated[str, Field(min_length=1, max_length=240)] = Field(
        description="model, method, data, limits, in any order",
        examples=["70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20"],
    )
    limit: Annotated[int, Field(ge=1, le=MOST_PLANS)] = Field(default=SHOWN, description="plans shown")


class OffersAsked(Asked):
    """Which offers: empty is all."""

    gpu: Names = Field(default=[], description="only these cards; a name that fits several means all")
    provider: Names = Field(default=[], description="only these providers")
    term: Names = Field(default=[], description="only these terms")
    region: Names = Field(default=[], description="only these regions")
    instance: Names = Field(default=[], description="only these machines")
    n_gpus: Count | None = Field(default=None, description="only machines with so many GPUs")


class PricesAsked(OffersAsked):
    """Offers, cheapest per GPU-hour first, with the day on which each price was seen and by whom."""

    as_of: Day | None = Field(default=None, description="as known on that day, YYYY-MM-DD")


class MarketAsked(PricesAsked):
    """Minimum, quartiles and maximum per card and term in dollars per GPU-hour, with the week's change."""


class HistoryAsked(OffersAsked):
    """Every price that was seen of some offers; at least one filter."""

    since: Day | None = Field(default=None, description="from that day on, YYYY-MM-DD")


class GpusAsked(Asked):
    """Known GPUs and their figures, dense rates."""

    name: Name | None = Field(default=None, description="one card, as people type it; none: all")


class ModelsAsked(Asked):
    """Known models; any other can be given by its config.json."""

    filter: Annotated[str, Field(max_length=200)] = Field(default="", description="part of an id; none: all")


class SchemaAsked(Asked):
    """The JSON Schema of an answer or of a noun."""

    name: Name = Field(description="plan, estimate, job, strategy, rig, offer, gpu, model, ...")
