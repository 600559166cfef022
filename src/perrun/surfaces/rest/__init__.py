"""The verbs over HTTP: `application()` is an ASGI app; `perrun serve` runs it."""

from perrun.surfaces.rest.app import application, from_environment, log_lines
from perrun.surfaces.rest.settings import Settings

__all__ = ["Settings", "application", "from_environment", "log_lines"]
