"""Llama and its descendants: pre-norm (or sandwich norms), rotary positions, grouped queries, a dense MLP.

Module names, biases and norms are those of the classes in transformers 5.24 (or of the repository's own code where
transformers has none), which the tests rebuild and compare.
"""

from perrun.facts.families import pieces
from perrun.facts.families.pieces import Heads, Mlp
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape


def decoder(
    f: Fields,
    mixer: tuple[Linear, ...],
    mlp: Mlp,
    heads: Heads,
    *,
    windows: list[int | None],
    tied: bool = False,
    norms: int = 2,
    norm_params: int | None = None,
    qk_norm_params: int | None = None,
    other_params: int = 0,
    head_bias: bool = False,
    softcap: bool = False,
) -> Shape:
    """A model whose layers differ in their window only. norm_params: of one norm (default: a weight per width)."""
    norm_params = pieces.hidden_size(f) if norm_params is None else norm_params

    def layer_at(i: int) -> Layer:
        return pieces.layer(
            mixer,
            mlp,
            heads,
            norms=norms,
            norm_params=norm_params,
            window=windows[i],
            qk_norm=qk_norm_params is not None,
            other_params=other_params + (qk_norm_params or 0),
        )

    return pieces.model(f, layer_at, tied=tied, final_params=norm_params, head_bias=head_bias, softcap=softcap)


def _gated(f: Fields, *, bias: bool = False) -> Mlp:
    return pieces.gated(pieces.hidden_size(f), f.whole("intermediate_size"), bias=bias)


def _per_head(heads: Heads) -> int:
    """Weights of query and key norms over one head."""
    return 2 * heads.dim


def _all_heads(heads: Heads) -> int:
    """Weights of query and key norms over all heads at once."""
    return (heads.q + heads.kv) * heads.dim


def llama(f: Fields) -> Shape:
    """Also granite, smollm3, ministral3, internlm3: same matrices, same flags."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias", "bias", "qkv_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    return decoder(f, mixer, _gated(f, bias=f.flag("mlp_bias")), heads, windows=pieces.windows(f, pieces.nowhere))


def ernie4_5(f: Fields) -> Shape:
    bias = f.flag("use_bias")
    return llama(f.with_defaults(tie_word_embeddings=True, head_dim=128, attention_bias=bias, mlp_bias=bias))


def smollm3(f: Fields) -> Shape:
    return llama(f.with_defaults(tie_word_embeddings=True))


def mistral(f: Fields) -> Shape:
    """Also ministral. The class slides where the file is silent; a null means that every token is seen."""
    f = f.with_defaults(sliding_window=4096)
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    return decoder(f, pieces.attention(hidden, heads), _gated(f), heads, windows=pieces.windows(f, pieces.everywhere))


def qwen2(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention(hidden, heads, qkv_bias=True)
    return decoder(f, mixer, _gated(f), heads, windows=pieces.qwen_windows(f))


def qwen3(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f, head_dim=128), f.flag("attention_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    windows = pieces.qwen_windows(f)
    return decoder(f, mixer, _gated(f), heads, windows=windows, qk_norm_params=_per_head(heads))


def hunyuan(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    windows = pieces.windows(f, pieces.nowhere)
    return decoder(f, mixer, _gated(f), heads, windows=windows, qk_norm_params=_per_head(heads))


def seed_oss(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f, head_dim=128)
    qkv_bias, o_bias = f.flag("attention_bias", default=True), f.flag("attention_out_bias")
    mixer = pieces.attention(hidden, heads, qkv_bias=qkv_bias, o_bias=o_bias)
    mlp = _gated(f, bias=f.flag("mlp_bias"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.nowhere))


def _gemma(f: Fields, *, windows: list[int | None], norms: int, qk_norm: bool) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f, head_dim=256), f.flag("attention_bias")
    return decoder(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        _gated(f),
        heads,
        windows=windows,
        tied=True,
        norms=norms,
        qk_norm_params=_per_head(heads) if qk_norm else None,
        softcap=f.has("final_logit_softcapping"),
    )


def gemma(f: Fields) -> Shape:
    return _gemma(f, windows=pieces.windows(f, pieces.nowhere), norms=2, qk_norm=False)


def gemma2(f: Fields) -> Shape:
    f = f.with_defaults(sliding_window=4096, final_logit_softcapping=30.0)
    return _gemma(f, windows=pieces.windows(f, pieces.all_but_every(2)), norms=4, qk_norm=False)


def gemma3(f: Fields) -> Shape:
    """The published files of the 4B and larger leave out what equals the class's defaults."""
    f = f.with_defaults(num_attention_heads=8, num_key_value_heads=4, vocab_size=262_208, sliding_window=4096)
    pattern = f.whole("sliding_window_pattern", default=6)
    return _gemma(f, windows=pieces.windows(f, pieces.all_but_every(pattern)), norms=4, qk_norm=True)


def phi3(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention_in_one(hidden, heads, ("qkv_proj", "o_proj"))
    mlp = pieces.gated_in_one(hidden, f.whole("intermediate_size"), names=("gate_up_proj", "down_proj"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.everywhere))


def _glm(f: Fields, *, norms: int) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f, head_dim=128)
    mixer = pieces.attention(hidden, heads, qkv_bias=f.flag("attention_bias", default=True))
    mlp = pieces.gated_in_one(hidden, f.whole("intermediate_size"), names=("gate_up_proj", "down_proj"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.nowhere), norms=norms)


def glm(f: Fields) -> Shape:
    return _glm(f, norms=2)


def glm4(f: Fields) -> Shape:
    return _glm(f, norms=4)


def _olmo(f: Fields, *, windows: list[int | None], qk_norm: bool, norm_params: int | None = None) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    return decoder(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        _gated(f),
        heads,
        windows=windows,
        norm_params=norm_params,
        qk_norm_params=_all_heads(heads) if qk_norm else None,
    )


def olmo(f: Fields) -> Shape:
    """Its norms have no weights."""
    return _olmo(f, windows=pieces.windows(f, pieces.nowhere), qk_norm=False, norm_params=0)


def olmo2(f: Fields) -> Shape:
    return _olmo(f, windows=pieces.windows(f, pieces.nowhere), qk_norm=True)


def olmo3(f: Fields) -> Shape:
    f = f.with_defaults(sliding_window=4096)
    return _olmo(f, windows=pieces.windows(f, pieces.all_but_every(4)), qk_norm=True)


def cohere(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias")
    pattern = f.whole("sliding_window_pattern", default=4)
    return decoder(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        _gated(f),
        heads,
        windows=pieces.windows(f, pieces.all_but_every(pattern)),
        tied=True,
        norms=1,
        qk_norm_params=_all_heads(heads) if f.flag("use_qk_norm") else None,
    )


def stablelm(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    return decoder(
        f,
        pieces.attention(hidden, heads, qkv_bias=f.flag("use_qkv_bias")),
        _gated(f),
        heads,
        windows=pieces.windows(f, pieces.nowhere),
        norms=1 if f.flag("use_parallel_residual") else 2,
        norm_params=2 * hidden,
        qk_norm_params=_all_heads(heads) if f.flag("qk_layernorm") else None,
    )


def exaone4(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    windows = pieces.windows(f, pieces.all_but_every(4))
    mixer = pieces.attention(hidden, heads)
    return decoder(f, mixer, _gated(f), heads, windows=windows, qk_norm_params=_per_head(heads))


def _plain_mlp(
    f: Fields, *, norm_params: int | None = None, qk_norm: bool = False, other_params: int = 0, head_dim: int | None
) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f, head_dim=head_dim), f.flag("attention_bias")
    mlp = pieces.plain(hidden, f.whole("intermediate_size"), names=("up_proj", "down_proj"), bias=f.flag("mlp_bias"))
    return decoder(
        f,
        pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias),
        mlp,
        heads,
        windows=pieces.windows(f, pieces.nowhere),
        norm_params=norm_params,
        qk_norm_params=_per_head(heads) if qk_norm else None,
        other_params=other_params,
    )


def arcee(f: Fields) -> Shape:
    return _plain_mlp(f, head_dim=None)


def apertus(f: Fields) -> Shape:
    """Its activation has two learned numbers a layer."""
    return _plain_mlp(f, qk_norm=True, other_params=2, head_dim=None)


def nemotron(f: Fields) -> Shape:
    """Norms are LayerNorms with bias."""
    return _plain_mlp(f, norm_params=2 * pieces.hidden_size(f), head_dim=None)


def internlm2(f: Fields) -> Shape:
    """Names of the repository's own code: wqkv, wo, w1, w3, w2."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("bias")
    mixer = pieces.attention_in_one(hidden, heads, ("wqkv", "wo"), qkv_bias=bias, o_bias=bias)
    mlp = pieces.gated(hidden, f.whole("intermediate_size"), names=("w1", "w3", "w2"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.nowhere))


def baichuan(f: Fields) -> Shape:
    """Names of the repository's own code: W_pack, o_proj."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention_in_one(hidden, heads, ("W_pack", "o_proj"))
    return decoder(f, mixer, _gated(f), heads, windows=pieces.windows(f, pieces.nowhere))


def minicpm(f: Fields) -> Shape:
    return llama(f.with_defaults(tie_word_embeddings=True))


def qwen(f: Fields) -> Shape:
    """Qwen 1, names of the repository's own code; `intermediate_size` is twice the width of the MLP."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    doubled = f.whole("intermediate_size")
    if doubled % 2:
        raise f.error("intermediate_size", doubled, "an even number (Qwen 1 halves it)")
    mixer = pieces.attention_in_one(hidden, heads, ("c_attn", "c_proj"), qkv_bias=True)
    mlp = pieces.gated(hidden, doubled // 2, names=("w2", "w1", "c_proj"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.nowhere))


def chatglm(f: Fields) -> Shape:
    """ChatGLM 2 and 3, names of the repository's own code."""
    hidden = pieces.hidden_size(f)
    kv = f.whole("multi_query_group_num") if f.flag("multi_query_attention") else None
    heads = pieces.read_heads(f, head_dim=f.optional("kv_channels"), kv=kv)
    bias = f.flag("add_bias_linear")
    mixer = pieces.attention_in_one(
        hidden, heads, ("query_key_value", "dense"), qkv_bias=bias or f.flag("add_qkv_bias"), o_bias=bias
    )
    mlp = pieces.gated_in_one(hidden, f.whole("ffn_hidden_size"), names=("dense_h_to_4h", "dense_4h_to_h"))
    return decoder(f, mixer, mlp, heads, windows=pieces.windows(f, pieces.nowhere))
