"""Mixtures of experts over ordinary attention: routed experts, shared experts, leading or interleaved dense layers.

Module names, biases and norms are those of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from collections.abc import Callable

from perrun.facts.families import pieces
from perrun.facts.families.pieces import Heads, Mlp
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape

_COUNT = ("num_experts", "num_local_experts", "n_routed_experts")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")


def _model(
    f: Fields,
    mixer: tuple[Linear, ...],
    heads: Heads,
    mlp_at: Callable[[int], Mlp],
    *,
    windows: list[int | None],
    tied: bool = False,
    norms: int = 2,
    norm_params: int | None = None,
    qk_norm_params: int | None = None,
    other_params: int = 0,
    head_bias: bool = False,
) -> Shape:
    norm_params = pieces.hidden_size(f) if norm_params is None else norm_params

    def layer_at(i: int) -> Layer:
        return pieces.layer(
            mixer,
            mlp_at(i),
            heads,
            norms=norms,
            norm_params=norm_params,
            window=windows[i],
            qk_norm=qk_norm_params is not None,
            other_params=other_params + (qk_norm_params or 0),
        )

    return pieces.model(f, layer_at, tied=tied, final_params=norm_params, head_bias=head_bias)


def mixtral(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    count, active = pieces.read_experts(f, _COUNT, _ACTIVE)
    mlp = pieces.moe(hidden, f.whole("intermediate_size"), count=count, active=active)
    windows = pieces.windows(f, pieces.everywhere)
    return _model(f, pieces.attention(hidden, heads), heads, pieces.always(mlp), windows=windows)


def phimoe(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    count, active = pieces.read_experts(f, _COUNT, _ACTIVE)
    mlp = pieces.moe(
        hidden, f.whole("intermediate_size"), count=count, active=active, router="router", router_is_module=True
    )
    return _model(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        heads,
        pieces.always(mlp),
        windows=pieces.windows(f, pieces.everywhere),
        norm_params=2 * hidden,
        head_bias=f.flag("lm_head_bias"),
    )


def shared_expert(hidden: int, width: int, *, names: tuple[str, str, str] = pieces.GATE_UP_DOWN) -> Mlp:
    return pieces.gated(hidden, width, names=names, role="shared_expert")


def qwen_sparse(f: Fields) -> Mlp:
    """Routed experts, and for Qwen 2 and Next one shared expert with a gate of its own."""
    hidden = pieces.hidden_size(f)
    count, active = pieces.read_experts(f, _COUNT, _ACTIVE)
    shared = pieces.NO_MLP
    width = f.optional("shared_expert_intermediate_size")
    if width is not None:
        expert = shared_expert(hidden, width)
        gate = Linear("shared_expert_gate", hidden, 1, "router")
        shared = Mlp("gated", width, (*expert.linears, gate))
    return pieces.moe(hidden, f.whole("moe_intermediate_size"), count=count, active=active, shared=shared)


def qwen_mlps(f: Fields) -> Callable[[int], Mlp]:
    """Every `decoder_sparse_step`-th layer is sparse unless `mlp_only_layers` names it."""
    step = f.whole("decoder_sparse_step", default=1)
    dense_layers = f.indices("mlp_only_layers") or frozenset()
    sparse = qwen_sparse(f)

    def mlp_at(i: int) -> Mlp:
        if i in dense_layers or (i + 1) % step:
            return pieces.gated(pieces.hidden_size(f), f.whole("intermediate_size"))
        return sparse

    return mlp_at


def qwen2_moe(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention(hidden, heads, qkv_bias=f.flag("qkv_bias", default=True))
    return _model(f, mixer, heads, qwen_mlps(f), windows=pieces.qwen_windows(f))


def qwen3_moe(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    mlps = qwen_mlps(f)
    return _model(f, mixer, heads, mlps, windows=pieces.qwen_windows(f), qk_norm_params=2 * heads.dim)


def olmoe(f: Fields) -> Shape:
    """Also flex_olmo and minimax_m2."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    count, active = pieces.read_experts(f, _COUNT, _ACTIVE)
    mlp = pieces.moe(hidden, f.whole("intermediate_size"), count=count, active=active)
    return _model(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        heads,
        pieces.always(mlp),
        windows=pieces.windows(f, pieces.nowhere),
        qk_norm_params=(heads.q + heads.kv) * heads.dim,
    )


def granite_mlp(f: Fields) -> Mlp:
    """Routed experts (may be none) beside an always active MLP (may be none)."""
    hidden = pieces.hidden_size(f)
    shared_width = f.whole("shared_intermediate_size", default=0, minimum=0)
    names = ("input_linear", "output_linear")
    count = f.whole("num_local_experts", default=0, minimum=0)
    if count == 0:
        return pieces.gated_in_one(hidden, shared_width, names=names)
    shared = pieces.NO_MLP
    if shared_width:
        shared = pieces.gated_in_one(hidden, shared_width, names=names, role="shared_expert")
    count, active = pieces.read_experts(f, _COUNT, _ACTIVE)
    width = f.whole("intermediate_size")
    return pieces.moe(hidden, width, count=count, active=active, router="router", shared=shared)


def granitemoe(f: Fields) -> Shape:
    """Also granitemoeshared."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    mlps, windows = pieces.always(granite_mlp(f)), pieces.windows(f, pieces.nowhere)
    return _model(f, mixer, heads, mlps, windows=windows)


def gpt_oss(f: Fields) -> Shape:
    """Biases in router and experts, one learned sink per head."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias", default=True)
    count, active = pieces.read_experts(f, _COUNT, ("num_experts_per_tok", "experts_per_token"))
    mlp = pieces.moe(hidden, f.whole("intermediate_size"), count=count, active=active, router="router", bias=True)
    return _model(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        heads,
        pieces.always(mlp),
        windows=pieces.windows(f, lambda i: i % 2 == 0),
        other_params=heads.q,
    )


def deepseek_mlps(f: Fields, *, router: str = "gate", router_is_module: bool = False) -> Callable[[int], Mlp]:
    """Leading dense layers, then routed experts with always active ones as wide as all of them together."""
    hidden, width = pieces.hidden_size(f), f.whole("moe_intermediate_size")
    count, active = pieces.read_experts(f, ("n_routed_experts", *_COUNT), _ACTIVE)
    n_shared = f.whole("n_shared_experts", "num_shared_experts", default=0, minimum=0)
    sparse = pieces.moe(
        hidden,
        width,
        count=count,
        active=active,
        router=router,
        router_is_module=router_is_module,
        shared=shared_expert(hidden, n_shared * width) if n_shared else pieces.NO_MLP,
    )
    kinds = f.per_layer("mlp_layer_types", pieces.n_layers(f))
    leading = f.whole("first_k_dense_replace", "num_dense_layers", default=0, minimum=0)
    every = f.whole("moe_layer_freq", default=1)

    def mlp_at(i: int) -> Mlp:
        is_dense = kinds[i] == "dense" if kinds else i < leading or i % every != 0
        return pieces.gated(hidden, f.whole("intermediate_size")) if is_dense else sparse

    return mlp_at


def glm4_moe(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    return _model(
        f,
        pieces.attention(hidden, heads, qkv_bias=f.flag("attention_bias")),
        heads,
        deepseek_mlps(f),
        windows=pieces.windows(f, pieces.nowhere),
        qk_norm_params=2 * heads.dim if f.flag("use_qk_norm") else None,
    )


def dots1(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    mlps, windows = deepseek_mlps(f), pieces.windows(f, pieces.nowhere)
    return _model(f, mixer, heads, mlps, windows=windows, qk_norm_params=2 * heads.dim)


def ernie4_5_moe(f: Fields) -> Shape:
    """Experts from the second layer on, each with a stored bias for the router."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("use_bias")
    count, active = pieces.read_experts(f, ("moe_num_experts",), ("moe_k",))
    width, n_shared = f.whole("moe_intermediate_size"), f.whole("moe_num_shared_experts", default=2, minimum=0)
    shared = shared_expert(hidden, n_shared * width) if n_shared else pieces.NO_MLP
    sparse = pieces.moe(hidden, width, count=count, active=active, shared=shared, other_params=count)
    first = f.whole("moe_layer_start_index", default=1, minimum=0)
    every = f.whole("moe_layer_interval", default=1)

    def mlp_at(i: int) -> Mlp:
        if i >= first and (i + 1) % every == 0:
            return sparse
        return pieces.gated(hidden, f.whole("intermediate_size"), bias=bias)

    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    return _model(f, mixer, heads, mlp_at, windows=pieces.windows(f, pieces.nowhere), tied=True)


def afmoe(f: Fields) -> Shape:
    """Attention with an output gate, four norms a layer, a stored bias per expert."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f, head_dim=128)
    bias = f.flag("attention_bias")
    gate = Linear("gate_proj", hidden, heads.q * heads.dim, "attention")
    mlps = deepseek_mlps(f, router_is_module=True)
    every = f.whole("global_attn_every_n_layers", default=4)

    def mlp_at(i: int) -> Mlp:
        mlp = mlps(i)
        if mlp.kind != "moe":
            return mlp
        return Mlp(mlp.kind, mlp.width, mlp.linears, mlp.other_params + f.whole("num_experts"))

    return _model(
        f,
        (*pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias), gate),
        heads,
        mlp_at,
        windows=pieces.windows(f, pieces.all_but_every(every)),
        norms=4,
        qk_norm_params=2 * heads.dim,
    )


def llama4(f: Fields) -> Shape:
    """Chunked attention on three of four layers; the query and key norms have no weights."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f, head_dim=128), f.flag("attention_bias")
    width = f.whole("intermediate_size")
    count, active = pieces.read_experts(f, ("num_local_experts",), ("num_experts_per_tok",))
    step = f.whole("interleave_moe_layer_step", default=1)
    listed = f.indices("moe_layers")
    shared = shared_expert(hidden, width)
    sparse = pieces.moe(
        hidden, width, count=count, active=active, router="router", router_is_module=True, shared=shared
    )

    def mlp_at(i: int) -> Mlp:
        is_sparse = i in listed if listed else (i + 1) % step == 0
        return sparse if is_sparse else pieces.gated(hidden, f.whole("intermediate_size_mlp"))

    no_rope_every = f.whole("no_rope_layer_interval", default=4)
    return _model(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        heads,
        mlp_at,
        windows=pieces.windows(f, pieces.all_but_every(no_rope_every), key="attention_chunk_size"),
        qk_norm_params=0 if f.flag("use_qk_norm", default=True) else None,
    )
