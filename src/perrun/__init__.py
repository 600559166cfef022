"""perrun: cost per run, not per hour.

    import perrun
    perrun.plan("meta-llama/Llama-3.1-8B", {"method": "qlora", "examples": 5000}).verdict

The verbs (`plan`, `ask`, `estimate`, `fit`, `compare`, `largest`) and the nouns that they take and give (`Job`, ...)
are read on first use, so that importing perrun costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perrun.terms import Comparison, Estimate, FitAnswer, Job, Model, Offer, Plan, PlanAnswer, Rig, Strategy
    from perrun.verbs import ask, compare, estimate, fit, largest, plan

__version__ = "0.1.0"
_NOUNS = ("Comparison", "Estimate", "FitAnswer", "Job", "Model", "Offer", "Plan", "PlanAnswer", "Rig", "Strategy")
_VERBS = ("ask", "compare", "estimate", "fit", "largest", "plan")
__all__ = [
    "Comparison", "Estimate", "FitAnswer", "Job", "Model", "Offer", "Plan", "PlanAnswer", "Rig", "Strategy",
    "ask", "compare", "estimate", "fit", "largest", "plan",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NOUNS:
        from perrun import terms

        return getattr(terms, name)
    if name in _VERBS:
        from perrun import verbs

        return getattr(verbs, name)
    raise AttributeError(f"module 'perrun' has no attribute {name!r}")
