"""The traced reference: the real model and adapters stepped on fake tensors, live bytes counted op by op."""

from perrun.trace.peak import TracedPeak, trace, versions
from perrun.trace.recipe import Recipe

__all__ = ["Recipe", "TracedPeak", "trace", "versions"]
