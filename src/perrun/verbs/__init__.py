"""The verbs: one public function each, which every surface calls. Plain values in, one noun out."""

from perrun.verbs.asking import job, layout, offers, state_of_prices
from perrun.verbs.comparing import compare, decisions, jobs, methods, rules
from perrun.verbs.knowing import calibrate, schema
from perrun.verbs.planning import alternatives, ask, estimate, fit, largest, plan, understood, vary
from perrun.verbs.writing import diff, recipe

__all__ = [
    "alternatives",
    "ask",
    "calibrate",
    "compare",
    "decisions",
    "diff",
    "estimate",
    "fit",
    "job",
    "jobs",
    "largest",
    "layout",
    "methods",
    "offers",
    "plan",
    "recipe",
    "rules",
    "schema",
    "state_of_prices",
    "understood",
    "vary",
]
