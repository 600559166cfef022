"""perrun: cost per run, not per hour."""

__version__ = "0.1.0"
