"""The parts that decoder families share: projections, MLPs, experts, norms, and how they make a layer and a model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Mixer, MlpKind, Role, Shape


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, key/value heads and the width of each."""

    q: int
    kv: int
    dim: int


@dataclass(frozen=True, slots=True)
class Mlp:
    """What stands between the second norm and the residual: its matrices and the width one token sees."""

    kind: MlpKind
    width: int
    linears: tuple[Linear, ...]
    other_params: int = 0


def read_heads(f: Fields, *, head_dim: int | None = None) -> Heads:
    """Heads of a config with the usual keys; head_dim is hidden_size / heads unless it is given.

    Raises InvalidInput when a width is no multiple of the number of heads.
    """
    hidden = f.whole("hidden_size", "n_embd", "d_model")
    q = f.whole("num_attention_heads", "n_head", "n_heads")
    kv = f.whole("num_key_value_heads", "num_kv_heads", default=q)
    dim = f.optional("head_dim") or head_dim
    if dim is None:
        if hidden % q:
            raise f.error("hidden_size", hidden, f"a multiple of num_attention_heads ({q}), or a head_dim")
        dim = hidden // q
    if q % kv:
        raise f.error("num_key_value_heads", kv, f"a divisor of num_attention_heads ({q})")
    return Heads(q, kv, dim)


def attention(hidden: int, heads: Heads, *, qkv_bias: bool = False, o_bias: bool = False) -> tuple[Linear, ...]:
    """q_proj, k_proj, v_proj, o_proj."""
    q, kv = heads.q * heads.dim, heads.kv * heads.dim
    return (
        Linear("q_proj", hidden, q, "attention", qkv_bias),
        Linear("k_proj", hidden, kv, "attention", qkv_bias),
        Linear("v_proj", hidden, kv, "attention", qkv_bias),
        Linear("o_proj", q, hidden, "attention", o_bias),
    )


def gated(hidden: int, width: int, *, bias: bool = False, role: Role = "mlp") -> Mlp:
    """down(act(gate x) * up x)."""
    return Mlp(
        "gated",
        width,
        (
            Linear("gate_proj", hidden, width, role, bias),
            Linear("up_proj", hidden, width, role, bias),
            Linear("down_proj", width, hidden, role, bias),
        ),
    )


def gated_in_one(hidden: int, width: int, names: tuple[str, str], *, role: Role = "mlp") -> Mlp:
    """The same with gate and up in one matrix of twice the width."""
    return Mlp("gated", width, (Linear(names[0], hidden, 2 * width, role), Linear(names[1], width, hidden, role)))


def plain(hidden: int, width: int, names: tuple[str, str], *, bias: bool = True, role: Role = "mlp") -> Mlp:
    """down(act(up x))."""
    return Mlp(
        "plain", width, (Linear(names[0], hidden, width, role, bias), Linear(names[1], width, hidden, role, bias))
    )


def layer(
    mixer: tuple[Linear, ...],
    mlp: Mlp,
    heads: Heads,
    *,
    norms: int,
    norm_params: int,
    window: int | None = None,
    qk_norm: bool = False,
    other_params: int = 0,
    kind: Mixer = "attention",
    v_head_dim: int | None = None,
) -> Layer:
    """One decoder layer; norm_params counts the weights (and biases) of one norm over the residual stream."""
    return Layer(
        count=1,
        linears=mixer + mlp.linears,
        mixer=kind,
        heads=heads.q,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        v_head_dim=heads.dim if v_head_dim is None else v_head_dim,
        window=window,
        norms=norms,
        qk_norm=qk_norm,
        mlp=mlp.kind,
        intermediate=mlp.width,
        other_params=norms * norm_params + mlp.other_params + other_params,
    )


def grouped(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Equal layers counted together, in the order of their first appearance."""
    counts: dict[Layer, int] = {}
    for one in layers:
        counts[one] = counts.get(one, 0) + 1
    return tuple(replace(one, count=count) for one, count in counts.items())


def n_layers(f: Fields) -> int:
    return f.whole("num_hidden_layers", "n_layer", "n_layers")


def model(
    f: Fields,
    layer_at: Callable[[int], Layer],
    *,
    tied: bool,
    final_params: int,
    embedding_width: int | None = None,
    position_params: int = 0,
    head_bias: bool = False,
    tower_params: int = 0,
    softcap: bool = False,
) -> Shape:
    """The shape of a decoder from its layers. `tied` is the family's default when the config does not say."""
    hidden = f.whole("hidden_size", "n_embd", "d_model")
    vocab = f.whole("vocab_size")
    return Shape(
        hidden_size=hidden,
        vocab_size=vocab,
        layers=grouped(layer_at(i) for i in range(n_layers(f))),
        tied=f.flag("tie_word_embeddings", default=tied),
        head_bias=head_bias,
        embedding_params=vocab * (embedding_width or hidden),
        position_params=position_params,
        final_params=final_params,
        tower_params=tower_params,
        softcap=softcap,
    )


def windows(f: Fields, default: Callable[[int], bool], *, key: str = "sliding_window") -> list[int | None]:
    """What a query of each layer sees: `sliding_window` tokens, or None for all earlier ones.

    `layer_types` decides when the config has it, otherwise the family's own rule.
    """
    n = n_layers(f)
    size = f.optional(key)
    types: list[Any] | None = f.per_layer("layer_types", n)
    local = [
        ("sliding" in str(t) or "chunked" in str(t)) if types else default(i) for i, t in enumerate(types or [0] * n)
    ]
    return [size if is_local else None for is_local in local]
