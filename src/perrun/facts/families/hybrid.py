"""Models that mix attention with linear attention, state spaces or short convolutions.

Module names, biases and norms are those of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from perrun.facts.families import mla, moe, pieces
from perrun.facts.families.pieces import Heads, Mlp
from perrun.facts.families.ssm import bamba_mixer, mamba2_mixer
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape


def _kinds(f: Fields, default: list[str]) -> list[str]:
    """`layer_types`, or the family's default."""
    types = f.per_layer("layer_types", pieces.n_layers(f))
    return [str(kind) for kind in types] if types else default


def granitemoehybrid(f: Fields) -> Shape:
    """Mamba 2 or attention by `layer_types`, each with experts and an always active MLP."""
    hidden, bias = pieces.hidden_size(f), f.flag("attention_bias")
    mlp = moe.granite_mlp(f)
    kinds = _kinds(f, ["mamba"] * pieces.n_layers(f))

    def layer_at(i: int) -> Layer:
        if kinds[i] in ("attention", "full_attention"):
            heads = pieces.read_heads(f)
            mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
            return pieces.layer(mixer, mlp, heads, norms=2, norm_params=hidden)
        mixer, heads, rest = bamba_mixer(f)
        return pieces.layer(mixer, mlp, heads, norms=2, norm_params=hidden, other_params=rest, kind="mamba")

    return pieces.model(f, layer_at, tied=False, final_params=hidden)


def _delta_net(f: Fields, *, fused: bool) -> tuple[tuple[Linear, ...], Heads, int]:
    """Gated DeltaNet mixer of Qwen 3 Next (fused inputs) and Qwen 3.5 (separate ones)."""
    hidden = pieces.hidden_size(f)
    k_heads, k_dim = f.whole("linear_num_key_heads"), f.whole("linear_key_head_dim")
    v_heads, v_dim = f.whole("linear_num_value_heads"), f.whole("linear_value_head_dim")
    keys, values = k_heads * k_dim, v_heads * v_dim
    if fused:
        inputs = {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * v_heads}
    else:
        inputs = {
            "in_proj_qkv": 2 * keys + values,
            "in_proj_z": values,
            "in_proj_b": v_heads,
            "in_proj_a": v_heads,
        }
    linears = tuple(Linear(name, hidden, width, "attention") for name, width in inputs.items())
    conv = (2 * keys + values) * f.whole("linear_conv_kernel_dim", default=4)
    rest = conv + 2 * v_heads + v_dim  # convolution, dt_bias and A_log, gated norm
    out = Linear("out_proj", values, hidden, "attention")
    return (*linears, out), Heads(v_heads, k_heads, k_dim, v_dim), rest


def _qwen_hybrid(f: Fields, *, fused: bool, sparse: bool) -> Shape:
    hidden, bias = pieces.hidden_size(f), f.flag("attention_bias")
    every = f.whole("full_attention_interval", default=4)
    n = pieces.n_layers(f)
    kinds = _kinds(f, ["linear_attention" if (i + 1) % every else "full_attention" for i in range(n)])
    mlp_at = moe.qwen_mlps(f) if sparse else pieces.always(pieces.gated(hidden, f.whole("intermediate_size")))
    heads = pieces.read_heads(f, head_dim=256)
    queries = Linear("q_proj", hidden, 2 * heads.q * heads.dim, "attention", bias)  # queries and their output gate
    full = (queries, *pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)[1:])
    linear, linear_heads, rest = _delta_net(f, fused=fused)

    def layer_at(i: int) -> Layer:
        if kinds[i] == "full_attention":
            qk = 2 * heads.dim
            return pieces.layer(full, mlp_at(i), heads, norms=2, norm_params=hidden, qk_norm=True, other_params=qk)
        return pieces.layer(
            linear,
            mlp_at(i),
            linear_heads,
            norms=2,
            norm_params=hidden,
            other_params=rest,
            kind="linear_attention",
        )

    return pieces.model(f, layer_at, tied=False, final_params=hidden)


def qwen3_next(f: Fields) -> Shape:
    return _qwen_hybrid(f, fused=True, sparse=True)


def qwen3_5(f: Fields) -> Shape:
    return _qwen_hybrid(f, fused=False, sparse=False)


def qwen3_5_moe(f: Fields) -> Shape:
    return _qwen_hybrid(f, fused=False, sparse=True)


_NEMOTRON_KINDS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def _nemotron_moe(f: Fields) -> Mlp:
    """Experts may work in a narrower latent space; the shared expert does not."""
    hidden, latent, bias = pieces.hidden_size(f), f.optional("moe_latent_size"), f.flag("mlp_bias")
    count, active = pieces.read_experts(f, ("n_routed_experts", "num_local_experts"), ("num_experts_per_tok",))
    shared_width = f.whole("moe_shared_expert_intermediate_size")
    shared = pieces.plain(hidden, shared_width, names=("up_proj", "down_proj"), bias=bias, role="shared_expert")
    width = f.whole("moe_intermediate_size")
    mlp = pieces.moe(latent or hidden, width, count=count, active=active, is_gated=False, shared=shared)
    router = Linear("gate", hidden, count, "router", is_module=False)
    around: tuple[Linear, ...] = ()
    if latent:
        around = (
            Linear("fc1_latent_proj", hidden, latent, "mlp", bias),
            Linear("fc2_latent_proj", latent, hidden, "mlp", bias),
        )
    return Mlp("moe", mlp.width, (router, *mlp.linears[1:], *around), mlp.other_params)


def nemotron_h(f: Fields) -> Shape:
    """One norm and one of Mamba 2, attention, MLP or experts a layer, in the order that the pattern spells."""
    hidden = pieces.hidden_size(f)
    pattern = f.items("layers_block_type", "layer_types") or list(f.text("hybrid_override_pattern"))
    if not pattern:
        raise f.error("hybrid_override_pattern", None, "a pattern of M, *, - and E, or layers_block_type")
    kinds = [_NEMOTRON_KINDS.get(str(kind), str(kind)) for kind in pattern]
    for kind in set(kinds) - {"mamba", "attention", "mlp", "moe"}:
        raise f.error("hybrid_override_pattern", kind, "M, *, - or E")

    def layer_at(i: int) -> Layer:
        match kinds[i]:
            case "mamba":
                mixer, heads, rest = mamba2_mixer(
                    hidden,
                    f.whole("mamba_num_heads"),
                    f.whole("mamba_head_dim"),
                    state=f.whole("ssm_state_size"),
                    groups=f.whole("n_groups", "mamba_n_groups"),
                    kernel=f.whole("conv_kernel", "mamba_d_conv", default=4),
                    conv_bias=f.flag("use_conv_bias", "mamba_conv_bias", default=True),
                    bias=f.flag("use_bias", "mamba_proj_bias"),
                )
                return pieces.layer(
                    mixer, pieces.NO_MLP, heads, norms=1, norm_params=hidden, other_params=rest, kind="mamba"
                )
            case "attention":
                heads, bias = pieces.read_heads(f, head_dim=128), f.flag("attention_bias")
                mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
                return pieces.layer(mixer, pieces.NO_MLP, heads, norms=1, norm_params=hidden)
            case "moe":
                mlp = _nemotron_moe(f)
            case _:
                names = ("up_proj", "down_proj")
                mlp = pieces.plain(hidden, f.whole("intermediate_size"), names=names, bias=f.flag("mlp_bias"))
        return pieces.layer((), mlp, pieces.NO_HEADS, norms=1, norm_params=hidden, kind="none")

    return pieces.model(f.overlaid(num_hidden_layers=len(kinds)), layer_at, tied=False, final_params=hidden)


def _short_conv(f: Fields) -> tuple[tuple[Linear, ...], Heads, int]:
    """LFM 2: a gated convolution over the last few tokens, one channel a head."""
    hidden, bias = pieces.hidden_size(f), f.flag("conv_bias")
    linears = (
        Linear("in_proj", hidden, 3 * hidden, "attention", bias),
        Linear("out_proj", hidden, hidden, "attention", bias),
    )
    rest = hidden * f.whole("conv_L_cache", default=3) + (hidden if bias else 0)
    return linears, Heads(hidden, hidden, 1), rest


def _lfm2_width(f: Fields) -> int:
    """`intermediate_size` is 3/2 of the width before rounding, unless block_auto_adjust_ff_dim is off."""
    width = f.whole("block_ff_dim", "intermediate_size")
    if not f.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(f.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
    multiple = f.whole("block_multiple_of", default=256)
    return multiple * -(-width // multiple)


def _lfm2(f: Fields, sparse_from: int | None) -> Shape:
    hidden, heads, n = pieces.hidden_size(f), pieces.read_heads(f), pieces.n_layers(f)
    full_layers = f.indices("full_attn_idxs") or frozenset(range(n))
    kinds = _kinds(f, ["full_attention" if i in full_layers else "conv" for i in range(n)])
    names = ("w1", "w3", "w2")
    if sparse_from is None:
        dense = sparse = pieces.gated(hidden, _lfm2_width(f), names=names)
    else:
        dense = pieces.gated(hidden, f.whole("intermediate_size"), names=names)
        count, active = pieces.read_experts(f, ("num_experts",), ("num_experts_per_tok",))
        sparse = pieces.moe(hidden, f.whole("moe_intermediate_size"), count=count, active=active)

    def layer_at(i: int) -> Layer:
        mlp = dense if sparse_from is None or i < sparse_from else sparse
        if kinds[i] == "full_attention":
            mixer = pieces.attention(hidden, heads, o_name="out_proj")
            qk = 2 * heads.dim
            return pieces.layer(mixer, mlp, heads, norms=2, norm_params=hidden, qk_norm=True, other_params=qk)
        mixer, conv_heads, rest = _short_conv(f)
        return pieces.layer(
            mixer, mlp, conv_heads, norms=2, norm_params=hidden, other_params=rest, kind="linear_attention"
        )

    return pieces.model(f, layer_at, tied=True, final_params=hidden)


def lfm2(f: Fields) -> Shape:
    return _lfm2(f, None)


def lfm2_moe(f: Fields) -> Shape:
    return _lfm2(f, f.whole("num_dense_layers", default=2, minimum=0))


def kimi_linear(f: Fields) -> Shape:
    """Kimi Delta Attention on most layers, latent attention on the rest; experts after the first layer."""
    hidden, n = pieces.hidden_size(f), pieces.n_layers(f)
    linear_config = f.section("linear_attn_config")
    if linear_config is None:
        default = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in range(n)]
        kinds = _kinds(f, default)
        sizes = f.whole("linear_num_heads", default=32), f.whole("linear_head_dim", default=128)
        kernel = f.whole("linear_conv_kernel_dim", default=4)
    else:
        full_layers = linear_config.indices("full_attn_layers") or frozenset()  # counted from 1
        kinds = ["full_attention" if i + 1 in full_layers else "linear_attention" for i in range(n)]
        sizes = linear_config.whole("num_heads", default=32), linear_config.whole("head_dim", default=128)
        kernel = linear_config.whole("short_conv_kernel_size", default=4)
    count, dim = sizes
    linear, rest = _kimi_delta(hidden, count, dim, kernel)
    full, full_heads, latent_norms = mla.latent_attention(f)
    mlp_at = moe.deepseek_mlps(f.with_defaults(first_k_dense_replace=1))

    def layer_at(i: int) -> Layer:
        mlp = mlp_at(i)
        if kinds[i] == "full_attention":
            return pieces.layer(
                full, mlp, full_heads, norms=2, norm_params=hidden, other_params=latent_norms, kind="mla"
            )
        heads = Heads(count, count, dim)
        return pieces.layer(linear, mlp, heads, norms=2, norm_params=hidden, other_params=rest, kind="linear_attention")

    return pieces.model(f, layer_at, tied=False, final_params=hidden)


def _kimi_delta(hidden: int, count: int, dim: int, kernel: int) -> tuple[tuple[Linear, ...], int]:
    """Kimi Delta Attention: matrices, and the rest (convolutions, dt_bias, A_log, gated norm)."""
    inner = count * dim
    linears = (
        *(Linear(name, hidden, inner, "attention") for name in ("q_proj", "k_proj", "v_proj")),
        Linear("f_a_proj", hidden, dim, "attention"),
        Linear("f_b_proj", dim, inner, "attention"),
        Linear("b_proj", hidden, count, "attention"),
        Linear("g_a_proj", hidden, dim, "attention"),
        Linear("g_b_proj", dim, inner, "attention"),
        Linear("o_proj", inner, hidden, "attention"),
    )
    return linears, 3 * inner * kernel + inner + count + dim
