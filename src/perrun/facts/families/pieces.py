"""The parts that decoder families share: projections, MLPs, experts, norms, and how they make a layer and a model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Mixer, MlpKind, Role, Shape

HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, key/value heads, the width of each, and that of a value when it differs."""

    q: int
    kv: int
    dim: int
    v_dim: int | None = None


@dataclass(frozen=True, slots=True)
class Mlp:
    """What stands between the second norm and the residual: its matrices and the width that one token sees."""

    kind: MlpKind
    width: int
    linears: tuple[Linear, ...]
    other_params: int = 0


NO_HEADS = Heads(0, 0, 0)
NO_MLP = Mlp("none", 0, ())


def hidden_size(f: Fields) -> int:
    return f.whole(*HIDDEN)


def n_layers(f: Fields) -> int:
    return f.whole(*LAYERS)


def read_heads(f: Fields, *, head_dim: int | None = None, kv: int | None = None) -> Heads:
    """Heads of a config with the usual keys; the width is hidden_size / heads unless the config or family says.

    Raises InvalidInput when hidden_size is no multiple of the heads, or the heads none of the key/value heads.
    """
    hidden = hidden_size(f)
    q = f.whole(*HEADS)
    kv = kv or f.whole("num_key_value_heads", "num_kv_heads", default=q)
    dim = f.optional("head_dim") or head_dim
    if dim is None:
        if hidden % q:
            raise f.error("hidden_size", hidden, f"a multiple of num_attention_heads ({q}), or a head_dim")
        dim = hidden // q
    if q % kv:
        raise f.error("num_key_value_heads", kv, f"a divisor of num_attention_heads ({q})")
    return Heads(q, kv, dim)


def attention(
    hidden: int, heads: Heads, *, qkv_bias: bool = False, o_bias: bool = False, o_name: str = "o_proj"
) -> tuple[Linear, ...]:
    """q_proj, k_proj, v_proj and the output projection."""
    q, kv = heads.q * heads.dim, heads.kv * heads.dim
    return (
        Linear("q_proj", hidden, q, "attention", qkv_bias),
        Linear("k_proj", hidden, kv, "attention", qkv_bias),
        Linear("v_proj", hidden, kv, "attention", qkv_bias),
        Linear(o_name, q, hidden, "attention", o_bias),
    )


def attention_in_one(
    hidden: int, heads: Heads, names: tuple[str, str], *, qkv_bias: bool = False, o_bias: bool = False
) -> tuple[Linear, ...]:
    """Queries, keys and values in one matrix, and the output projection."""
    q, kv = heads.q * heads.dim, heads.kv * heads.dim
    return (
        Linear(names[0], hidden, q + 2 * kv, "attention", qkv_bias),
        Linear(names[1], q, hidden, "attention", o_bias),
    )


GATE_UP_DOWN = ("gate_proj", "up_proj", "down_proj")


def gated(
    hidden: int, width: int, *, names: tuple[str, str, str] = GATE_UP_DOWN, bias: bool = False, role: Role = "mlp"
) -> Mlp:
    """down(act(gate x) * up x)."""
    gate, up, down = names
    linears = (
        Linear(gate, hidden, width, role, bias),
        Linear(up, hidden, width, role, bias),
        Linear(down, width, hidden, role, bias),
    )
    return Mlp("gated", width, linears)


def gated_in_one(hidden: int, width: int, *, names: tuple[str, str], role: Role = "mlp") -> Mlp:
    """The same with gate and up in one matrix of twice the width."""
    linears = (Linear(names[0], hidden, 2 * width, role), Linear(names[1], width, hidden, role))
    return Mlp("gated", width, linears)


def plain(hidden: int, width: int, *, names: tuple[str, str], bias: bool = False, role: Role = "mlp") -> Mlp:
    """down(act(up x))."""
    linears = (Linear(names[0], hidden, width, role, bias), Linear(names[1], width, hidden, role, bias))
    return Mlp("plain", width, linears)


def moe(
    hidden: int,
    width: int,
    *,
    count: int,
    active: int,
    router: str = "gate",
    router_is_module: bool = False,
    bias: bool = False,
    is_gated: bool = True,
    shared: Mlp = NO_MLP,
    other_params: int = 0,
) -> Mlp:
    """A router, `count` routed experts of which `active` see a token, and what every token passes beside them.

    Experts are fused 3-D parameters in transformers 5 (gate_up_proj, down_proj), no modules: neither adapters on
    linear modules nor 4-bit loading reach them. So are most routers.
    """
    first = Linear(
        "gate_up_proj" if is_gated else "up_proj",
        hidden,
        2 * width if is_gated else width,
        "expert",
        bias,
        count,
        active,
        False,
    )
    linears = (
        Linear(router, hidden, count, "router", bias, is_module=router_is_module),
        first,
        Linear("down_proj", width, hidden, "expert", bias, count, active, False),
        *shared.linears,
    )
    return Mlp("moe", active * width + shared.width, linears, other_params + shared.other_params)


def read_experts(f: Fields, count: tuple[str, ...], active: tuple[str, ...]) -> tuple[int, int]:
    """Number of routed experts and how many see a token; InvalidInput when more see it than there are."""
    n, k = f.whole(*count), f.whole(*active)
    if k > n:
        raise f.error(active[0], k, f"at most the number of experts ({n})")
    return n, k


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
) -> Layer:
    """One decoder layer; norm_params counts the weights (and biases) of one norm over the residual stream."""
    return Layer(
        count=1,
        linears=mixer + mlp.linears,
        mixer=kind,
        heads=heads.q,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        v_head_dim=heads.dim if heads.v_dim is None else heads.v_dim,
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


def model(
    f: Fields,
    layer_at: Callable[[int], Layer],
    *,
    tied: bool,
    final_params: int,
    embedding_width: int | None = None,
    position_params: int = 0,
    head_bias: bool = False,
    softcap: bool = False,
) -> Shape:
    """The shape of a decoder from its layers. `tied` is the family's default where the config does not say."""
    hidden = hidden_size(f)
    vocab = f.whole("vocab_size", "padded_vocab_size")
    return Shape(
        hidden_size=hidden,
        vocab_size=vocab,
        layers=grouped(layer_at(i) for i in range(n_layers(f))),
        tied=f.flag("tie_word_embeddings", "tie_embedding", default=tied),
        head_bias=head_bias,
        embedding_params=vocab * (embedding_width or hidden),
        position_params=position_params,
        final_params=final_params,
        tower_params=0,
        softcap=softcap,
    )


def windows(f: Fields, default: Callable[[int], bool], *, key: str = "sliding_window") -> list[int | None]:
    """What a query of each layer sees: the window's tokens, or None for all earlier ones.

    `layer_types` decides where the config has it, otherwise the family's own rule.
    """
    n = n_layers(f)
    size = f.optional(key)
    if size is None:
        return [None] * n
    types = f.per_layer("layer_types", n)
    if types is None:
        return [size if default(i) else None for i in range(n)]
    return [size if "sliding" in str(kind) or "chunked" in str(kind) else None for kind in types]


def always(mlp: Mlp) -> Callable[[int], Mlp]:
    """The same MLP on every layer."""
    return lambda _: mlp


def everywhere(_: int) -> bool:
    return True


def nowhere(_: int) -> bool:
    return False


def all_but_every(n: int) -> Callable[[int], bool]:
    """True on all but every n-th layer."""
    return lambda i: (i + 1) % n != 0


def qwen_windows(f: Fields) -> list[int | None]:
    """Qwen 2 and 3: a window only if `use_sliding_window`, from layer `max_window_layers` on."""
    if not f.flag("use_sliding_window"):
        return [None] * n_layers(f)
    first = f.whole("max_window_layers", default=28, minimum=0)
    return windows(f, lambda i: i >= first)
