"""Measured runs: reading them, and turning each into a question that the laws can answer."""

from perrun.runs.measured import Measured
from perrun.runs.notes import Variant
from perrun.runs.settings import Settings, Skipped, settings
from perrun.runs.table import read

__all__ = ["Measured", "Settings", "Skipped", "Variant", "read", "settings"]
