"""The parts of a causal language model that a trace needs, whatever its family calls them."""

import importlib
from typing import Any

from perrun.errors import Unavailable, UnsupportedModel

Net = Any  # a model of transformers or peft: its attributes are its family's, so no type tells them


def library(name: str) -> Any:
    """A module of the extra `trace`, imported when it is needed. Raises Unavailable."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"tracing needs {error.name or name}", hint="pip install 'perrun[trace]'") from error


def applied(function: Any, *inputs: Any) -> Any:
    """Run an autograd function (torch leaves `apply` without a type)."""
    return function.apply(*inputs)


def base_of(model: Net) -> Net:
    """The causal language model under the adapters, if any."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def head(model: Net) -> Net:
    """The projection to the vocabulary."""
    return base_of(model).get_output_embeddings()


def vocabulary(model: Net) -> int:
    """Rows of the head."""
    return int(head(model).weight.shape[0])


def decoder(model: Net) -> Net:
    """Everything but the head: gives the last hidden states."""
    base = base_of(model)
    for name in (base.base_model_prefix, "model", "transformer"):
        if hasattr(base, name):
            return getattr(base, name)
    raise UnsupportedModel(f"{type(base).__name__} does not say which of its modules is the decoder")


def layers(model: Net) -> list[Net]:
    """The decoder layers, first to last: the outermost list of as many modules as the config counts layers."""
    count = base_of(model).config.get_text_config().num_hidden_layers
    torch = library("torch")
    lists = [
        (name.count("."), list(module))
        for name, module in decoder(model).named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and not _in_tower(name)
    ]
    if not lists:
        raise UnsupportedModel(f"{type(base_of(model)).__name__} holds no list of {count} layers")
    return min(lists, key=lambda found: found[0])[1]


def _in_tower(name: str) -> bool:
    return any(word in name for word in ("vision", "visual", "audio"))
