"""State-space models: Mamba 1 and 2, Bamba, Jamba.

Module names, biases and norms are those of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from perrun.facts.families import pieces
from perrun.facts.families.pieces import Heads
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape


def mamba2_mixer(
    hidden: int, heads: int, head_dim: int, *, state: int, groups: int, kernel: int, conv_bias: bool, bias: bool
) -> tuple[tuple[Linear, ...], Heads, int]:
    """Mamba 2 mixer: matrices, heads, and the rest (convolution, dt_bias, A_log, D, gated norm)."""
    inner = heads * head_dim
    conv = inner + 2 * groups * state
    linears = (
        Linear("in_proj", hidden, inner + conv + heads, "attention", bias),
        Linear("out_proj", inner, hidden, "attention", bias),
    )
    rest = conv * kernel + (conv if conv_bias else 0) + 3 * heads + inner
    return linears, Heads(heads, groups, state, head_dim), rest


def bamba_mixer(f: Fields) -> tuple[tuple[Linear, ...], Heads, int]:
    """The same in the spelling of Bamba and Granite 4."""
    hidden = pieces.hidden_size(f)
    inner = f.whole("mamba_expand", default=2) * hidden
    heads = f.whole("mamba_n_heads", default=128)
    if inner % heads:
        raise f.error("mamba_n_heads", heads, f"a divisor of mamba_expand * hidden_size ({inner})")
    return mamba2_mixer(
        hidden,
        heads,
        inner // heads,
        state=f.whole("mamba_d_state", default=256),
        groups=f.whole("mamba_n_groups", default=1),
        kernel=f.whole("mamba_d_conv", default=4),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        bias=f.flag("mamba_proj_bias"),
    )


def _mamba1_mixer(
    f: Fields, inner: int, *, state: int, kernel: int, rank: int
) -> tuple[tuple[Linear, ...], Heads, int]:
    """Mamba 1 mixer: matrices, heads (one a channel), and the rest (convolution, A_log, D)."""
    hidden = pieces.hidden_size(f)
    bias, conv_bias = f.flag("use_bias", "mamba_proj_bias"), f.flag("use_conv_bias", "mamba_conv_bias", default=True)
    linears = (
        Linear("in_proj", hidden, 2 * inner, "attention", bias),
        Linear("x_proj", inner, rank + 2 * state, "attention"),
        Linear("dt_proj", rank, inner, "attention", True),
        Linear("out_proj", inner, hidden, "attention", bias),
    )
    return linears, Heads(inner, 1, state, 1), inner * (kernel + state + 1) + (inner if conv_bias else 0)


def mamba(f: Fields) -> Shape:
    """Also falcon_mamba: one norm and one mixer a layer."""
    hidden = pieces.hidden_size(f)
    inner = f.whole("intermediate_size", "d_inner", default=f.whole("expand", default=2) * hidden)
    rank = -(-hidden // 16) if f.config.get("time_step_rank", "auto") == "auto" else f.whole("time_step_rank")
    state, kernel = f.whole("state_size", default=16), f.whole("conv_kernel", default=4)
    mixer, heads, rest = _mamba1_mixer(f, inner, state=state, kernel=kernel, rank=rank)
    one = pieces.layer(mixer, pieces.NO_MLP, heads, norms=1, norm_params=hidden, other_params=rest, kind="mamba")
    return pieces.model(f, lambda _: one, tied=True, final_params=hidden)


def mamba2(f: Fields) -> Shape:
    hidden = pieces.hidden_size(f)
    mixer, heads, rest = mamba2_mixer(
        hidden,
        f.whole("num_heads", default=128),
        f.whole("head_dim", default=64),
        state=f.whole("state_size", default=128),
        groups=f.whole("n_groups", default=8),
        kernel=f.whole("conv_kernel", default=4),
        conv_bias=f.flag("use_conv_bias", default=True),
        bias=f.flag("use_bias"),
    )
    one = pieces.layer(mixer, pieces.NO_MLP, heads, norms=1, norm_params=hidden, other_params=rest, kind="mamba")
    return pieces.model(f, lambda _: one, tied=False, final_params=hidden)


def bamba(f: Fields) -> Shape:
    """Mamba 2, and attention on the layers that `attn_layer_indices` names; a gated MLP on each."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    mlp = pieces.gated(hidden, f.whole("intermediate_size"), bias=f.flag("mlp_bias"))
    full = f.indices("attn_layer_indices") or frozenset()
    attention = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    mixer, mamba_heads, rest = bamba_mixer(f)

    def layer_at(i: int) -> Layer:
        if i in full:
            return pieces.layer(attention, mlp, heads, norms=2, norm_params=hidden)
        return pieces.layer(mixer, mlp, mamba_heads, norms=2, norm_params=hidden, other_params=rest, kind="mamba")

    return pieces.model(f, layer_at, tied=False, final_params=hidden)


def jamba(f: Fields) -> Shape:
    """Mamba 1 with norms on its small inputs, attention and experts each on every n-th layer."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    dense = pieces.gated(hidden, f.whole("intermediate_size"))
    count, active = pieces.read_experts(f, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    sparse = pieces.moe(hidden, f.whole("intermediate_size"), count=count, active=active, router="router")
    attn_every, attn_from = f.whole("attn_layer_period", default=8), f.whole("attn_layer_offset", default=4, minimum=0)
    moe_every, moe_from = (
        f.whole("expert_layer_period", default=2),
        f.whole("expert_layer_offset", default=1, minimum=0),
    )
    state = f.whole("mamba_d_state", default=16)
    rank = -(-hidden // 16) if f.config.get("mamba_dt_rank", "auto") == "auto" else f.whole("mamba_dt_rank")
    inner, kernel = f.whole("mamba_expand", default=2) * hidden, f.whole("mamba_d_conv", default=4)
    mixer, mamba_heads, rest = _mamba1_mixer(f, inner, state=state, kernel=kernel, rank=rank)
    rest += rank + 2 * state
    attention = pieces.attention(hidden, heads)

    def layer_at(i: int) -> Layer:
        mlp = sparse if count > 1 and i % moe_every == moe_from else dense
        if i % attn_every == attn_from:
            return pieces.layer(attention, mlp, heads, norms=2, norm_params=hidden)
        return pieces.layer(mixer, mlp, mamba_heads, norms=2, norm_params=hidden, other_params=rest, kind="mamba")

    return pieces.model(f, layer_at, tied=False, final_params=hidden)
