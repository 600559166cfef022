"""Which reader understands which `model_type`: one small function per family that truly differs.

A reader takes the fields of the language part of a config.json and returns its Shape. Modules are imported when
the first model of theirs is read, so that asking for one model stays fast.
"""

from collections.abc import Callable
from importlib import import_module

from perrun.facts.fields import Fields
from perrun.shapes import Shape

Reader = Callable[[Fields], Shape]

# model_type -> module of this package and function in it
READERS: dict[str, str] = {
    "llama": "llama.llama",
    "mistral": "llama.mistral",
    "qwen2": "llama.qwen2",
    "qwen3": "llama.qwen3",
    "gemma": "llama.gemma",
    "gemma2": "llama.gemma2",
    "gemma3_text": "llama.gemma3_text",
}


def reader(model_type: str) -> Reader | None:
    """The reader of a model_type, None when there is none."""
    if model_type not in READERS:
        return None
    module, function = READERS[model_type].split(".")
    return getattr(import_module(f"{__name__}.{module}"), function)
