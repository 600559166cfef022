"""Gemma 3n and Gemma 4: per-layer embeddings, layers that share keys and values, global layers of other widths.

Module names, biases and norms are those of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from dataclasses import replace

from perrun.facts.families import pieces
from perrun.facts.families.pieces import Heads, Mlp
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape


def _without(mixer: tuple[Linear, ...], *names: str) -> tuple[Linear, ...]:
    return tuple(linear for linear in mixer if linear.name not in names)


def _first_shared(f: Fields, n: int, default: int) -> int:
    """The first layer that reuses keys and values of an earlier one."""
    shared = f.whole("num_kv_shared_layers", default=default, minimum=0)
    if shared > n:
        raise f.error("num_kv_shared_layers", shared, f"at most the number of layers ({n})")
    return n - shared


def _per_layer_linears(hidden: int, width: int) -> tuple[Linear, ...]:
    """What brings the per-layer embedding into the residual stream."""
    if not width:
        return ()
    return (Linear("per_layer_input_gate", hidden, width, "mlp"), Linear("per_layer_projection", width, hidden, "mlp"))


def _with_per_layer_embedding(f: Fields, shape: Shape, width: int) -> Shape:
    """The table of per-layer embeddings is looked up like positions; its projection and norm run once a token."""
    if not width:
        return shape
    total = shape.n_layers * width
    vocab = f.whole("vocab_size_per_layer_input", default=262_144)
    projection = total * shape.hidden_size + width
    return replace(shape, position_params=vocab * total, final_params=shape.final_params + projection)


def gemma3n(f: Fields) -> Shape:
    """AltUp keeps several residual streams, LAuReL adds a low-rank path beside attention."""
    f = f.with_defaults(sliding_window=512, final_logit_softcapping=30.0)
    hidden, n = pieces.hidden_size(f), pieces.n_layers(f)
    heads, bias = pieces.read_heads(f, head_dim=256), f.flag("attention_bias")
    per_layer = f.whole("hidden_size_per_layer_input", default=256)
    streams, rank = f.whole("altup_num_inputs", default=4), f.whole("laurel_rank", default=64)
    widths = f.wholes("intermediate_size", n)
    first_shared, windows = _first_shared(f, n, 15), pieces.windows(f, pieces.all_but_every(5))
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    beside = (
        Linear("correction_coefs", streams, streams, "mlp"),
        Linear("prediction_coefs", streams, streams * streams, "mlp"),
        Linear("modality_router", hidden, streams, "mlp"),
        Linear("linear_left", hidden, rank, "mlp"),
        Linear("linear_right", rank, hidden, "mlp"),
        *_per_layer_linears(hidden, per_layer),
    )

    def layer_at(i: int) -> Layer:
        shares = i >= first_shared
        mlp = pieces.gated(hidden, widths[i])
        return pieces.layer(
            _without(mixer, "k_proj", "v_proj") if shares else mixer,
            Mlp("gated", mlp.width, mlp.linears + beside),
            heads,
            norms=5,  # four around attention and MLP, one after the per-layer input
            norm_params=hidden,
            window=windows[i],
            qk_norm=True,
            # q_norm and k_norm; AltUp's scale and router norm; LAuReL's norm
            other_params=heads.dim * (1 if shares else 2) + 3 * hidden,
        )

    altup = 2 * (streams - 1) * hidden * hidden  # projections into and out of the other streams
    softcap = f.has("final_logit_softcapping")
    shape = pieces.model(f, layer_at, tied=True, final_params=hidden + altup, softcap=softcap)
    return _with_per_layer_embedding(f, shape, per_layer)


def _gemma4_mlp(f: Fields, width: int) -> Mlp:
    """A dense MLP, and for the mixture routed experts beside it, with three more norms."""
    hidden = pieces.hidden_size(f)
    dense = pieces.gated(hidden, width)
    if not f.flag("enable_moe_block"):
        return dense
    count, active = pieces.read_experts(f, ("num_experts",), ("top_k_experts", "num_experts_per_tok"))
    return pieces.moe(
        hidden,
        f.whole("moe_intermediate_size"),
        count=count,
        active=active,
        router="proj",
        router_is_module=True,
        shared=pieces.gated(hidden, width, role="shared_expert"),
        other_params=hidden + count,  # the router's scales
    )


def gemma4(f: Fields) -> Shape:
    """Global layers have wider heads, may have fewer of them for keys, and may use the keys as values."""
    f = f.with_defaults(sliding_window=512)
    hidden, n = pieces.hidden_size(f), pieces.n_layers(f)
    bias = f.flag("attention_bias")
    local = pieces.read_heads(f, head_dim=256)
    k_is_v = f.flag("attention_k_eq_v")
    global_kv = f.optional("num_global_key_value_heads") if k_is_v else None
    wide = Heads(local.q, global_kv or local.kv, f.whole("global_head_dim", default=512))
    windows = pieces.windows(f, lambda i: (i + 1) % 6 != 0 and i != n - 1)
    first_shared = _first_shared(f, n, 0)
    double = f.flag("use_double_wide_mlp")
    per_layer = f.whole("hidden_size_per_layer_input", default=256, minimum=0)
    norms = 4 + (1 if per_layer else 0) + (3 if f.flag("enable_moe_block") else 0)

    def layer_at(i: int) -> Layer:
        shares, heads = i >= first_shared, local if windows[i] else wide
        mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
        if shares:
            mixer = _without(mixer, "k_proj", "v_proj")
        elif k_is_v and windows[i] is None:
            mixer = _without(mixer, "v_proj")
        mlp = _gemma4_mlp(f, f.whole("intermediate_size") * (2 if double and shares else 1))
        return pieces.layer(
            mixer,
            replace(mlp, linears=mlp.linears + _per_layer_linears(hidden, per_layer)),
            heads,
            norms=norms,
            norm_params=hidden,
            window=windows[i],
            qk_norm=True,
            other_params=heads.dim * (1 if shares else 2),
        )

    softcap = f.has("final_logit_softcapping")
    shape = pieces.model(f, layer_at, tied=True, final_params=hidden, softcap=softcap)
    return _with_per_layer_embedding(f, shape, per_layer)
