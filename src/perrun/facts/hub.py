"""Any model by its `config.json`: the facts of the file become a Model."""

from typing import Any

from perrun.errors import InvalidInput, UnsupportedModel
from perrun.facts import families
from perrun.facts.fields import Fields
from perrun.terms import Model


def _architecture(f: Fields) -> str:
    names = f.items("architectures") or []
    return str(names[0]) if names else ""


def _text(f: Fields) -> Fields:
    """The language part of a config: text_config of a wrapper with towers, else the config itself."""
    return f.section("text_config") or f


def _quantization(f: Fields) -> str | None:
    quantization = f.section("quantization_config")
    if quantization is None:
        return None
    return quantization.text("quant_method", default="unknown")


def from_config(config: dict[str, Any], id: str) -> Model:
    """The Model of a parsed config.json; `id` names it in answers and complaints.

    Raises UnsupportedModel when it is no causal language model or nothing here reads its model_type, and
    InvalidInput naming the key when a value is missing or not allowed.
    """
    f = Fields(config, id)
    model_type = f.text("model_type")
    if not model_type:
        raise InvalidInput(f"{id}: model_type is missing", expected="the config.json of a language model")
    text = _text(f)
    reader = families.reader(model_type)
    if reader is None:
        raise UnsupportedModel(
            f"{id}: model_type {model_type!r} is not known",
            expected=f"one of {', '.join(sorted(families.READERS))}",
        )
    return Model(
        id=id,
        model_type=model_type,
        architecture=_architecture(f),
        shape=reader(text if text is not f and model_type.endswith("_text") else f),
        max_position_embeddings=text.optional("max_position_embeddings", "n_positions", "max_seq_len"),
        native_dtype=f.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype", default="float32"),
        stored_quantization=_quantization(f) or _quantization(text),
        config=config,
        source="config.json",
    )
