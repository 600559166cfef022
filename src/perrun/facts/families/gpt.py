"""GPT-2, its cousins and the other models of that age: LayerNorm, plain MLP, learned or ALiBi or rotary positions.

Module names, biases and norms are those of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from perrun.facts.families import pieces
from perrun.facts.families.llama import decoder
from perrun.facts.families.pieces import Heads
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Shape


def _gpt2(f: Fields, heads: Heads) -> Shape:
    hidden = pieces.hidden_size(f)
    mixer = pieces.attention_in_one(hidden, heads, ("c_attn", "c_proj"), qkv_bias=True, o_bias=True)
    width = f.whole("n_inner", default=4 * hidden)
    mlp = pieces.plain(hidden, width, names=("c_fc", "c_proj"), bias=True)
    one = pieces.layer(mixer, mlp, heads, norms=2, norm_params=2 * hidden)
    positions = f.whole("n_positions", "n_ctx", "max_position_embeddings") * hidden
    return pieces.model(f, lambda _: one, tied=True, final_params=2 * hidden, position_params=positions)


def gpt2(f: Fields) -> Shape:
    """c_attn, c_proj, c_fc are Conv1D modules: linear layers stored transposed."""
    return _gpt2(f, pieces.read_heads(f))


def gpt_bigcode(f: Fields) -> Shape:
    return _gpt2(f, pieces.read_heads(f, kv=1 if f.flag("multi_query", default=True) else None))


def gpt_neo(f: Fields) -> Shape:
    """Every second layer is local by default; queries, keys and values have no bias."""
    hidden = pieces.hidden_size(f)
    f = f.with_defaults(num_attention_heads=f.whole("num_heads", "num_attention_heads"), window_size=256)
    heads = pieces.read_heads(f)
    mixer = pieces.attention(hidden, heads, o_bias=True, o_name="out_proj")
    mlp = pieces.plain(hidden, f.whole("intermediate_size", default=4 * hidden), names=("c_fc", "c_proj"), bias=True)
    window = f.whole("window_size")

    def layer_at(i: int) -> Layer:
        local = window if i % 2 else None
        return pieces.layer(mixer, mlp, heads, norms=2, norm_params=2 * hidden, window=local)

    positions = f.whole("max_position_embeddings") * hidden
    return pieces.model(f, layer_at, tied=True, final_params=2 * hidden, position_params=positions)


def gptj(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention(hidden, heads, o_name="out_proj")
    mlp = pieces.plain(hidden, f.whole("n_inner", default=4 * hidden), names=("fc_in", "fc_out"), bias=True)
    one = pieces.layer(mixer, mlp, heads, norms=1, norm_params=2 * hidden)
    return pieces.model(f, lambda _: one, tied=False, final_params=2 * hidden, head_bias=True)


def codegen(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention_in_one(hidden, heads, ("qkv_proj", "out_proj"))
    mlp = pieces.plain(hidden, f.whole("n_inner", default=4 * hidden), names=("fc_in", "fc_out"), bias=True)
    one = pieces.layer(mixer, mlp, heads, norms=1, norm_params=2 * hidden)
    return pieces.model(f, lambda _: one, tied=False, final_params=2 * hidden, head_bias=True)


def gpt_neox(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("attention_bias", default=True)
    mixer = pieces.attention_in_one(hidden, heads, ("query_key_value", "dense"), qkv_bias=bias, o_bias=bias)
    mlp = pieces.plain(hidden, f.whole("intermediate_size"), names=("dense_h_to_4h", "dense_4h_to_h"), bias=True)
    windows = pieces.windows(f, pieces.nowhere)
    return decoder(f, mixer, mlp, heads, windows=windows, norm_params=2 * hidden)


def bloom(f: Fields) -> Shape:
    """One more norm follows the embedding."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention_in_one(hidden, heads, ("query_key_value", "dense"), qkv_bias=True, o_bias=True)
    mlp = pieces.plain(hidden, 4 * hidden, names=("dense_h_to_4h", "dense_4h_to_h"), bias=True)
    one = pieces.layer(mixer, mlp, heads, norms=2, norm_params=2 * hidden)
    return pieces.model(f, lambda _: one, tied=True, final_params=2 * 2 * hidden)


def opt(f: Fields) -> Shape:
    """Two more position rows than positions; the 350M embeds at half width and norms after the residual."""
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("enable_bias", default=True)
    norm = 2 * hidden if f.flag("layer_norm_elementwise_affine", default=True) else 0
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias, o_name="out_proj")
    mlp = pieces.plain(hidden, f.whole("ffn_dim", "intermediate_size"), names=("fc1", "fc2"), bias=bias)
    one = pieces.layer(mixer, mlp, heads, norms=2, norm_params=norm)
    width = f.whole("word_embed_proj_dim", default=hidden)
    last_norm = norm if f.flag("do_layer_norm_before", default=True) else 0
    return pieces.model(
        f,
        lambda _: one,
        tied=True,
        embedding_width=width,
        position_params=(f.whole("max_position_embeddings") + 2) * hidden,
        final_params=last_norm + (2 * width * hidden if width != hidden else 0),  # project_in and project_out
    )


def falcon(f: Fields) -> Shape:
    hidden, bias = pieces.hidden_size(f), f.flag("bias")
    new = f.flag("new_decoder_architecture")
    kv = f.optional("num_kv_heads", "n_head_kv") if new else (1 if f.flag("multi_query", default=True) else None)
    heads = pieces.read_heads(f, kv=kv or f.whole(*pieces.HEADS))
    mixer = pieces.attention_in_one(hidden, heads, ("query_key_value", "dense"), qkv_bias=bias, o_bias=bias)
    width = f.whole("ffn_hidden_size", default=4 * hidden)
    mlp = pieces.plain(hidden, width, names=("dense_h_to_4h", "dense_4h_to_h"), bias=bias)
    parallel_norms = f.whole("num_ln_in_parallel_attn", default=2 if new else 1)
    norms = parallel_norms if new or f.flag("parallel_attn", default=True) else 2
    one = pieces.layer(mixer, mlp, heads, norms=norms, norm_params=2 * hidden)
    return pieces.model(f, lambda _: one, tied=True, final_params=2 * hidden)


def mpt(f: Fields) -> Shape:
    """No biases, and no learned positions, unless the config says so (llm-foundry's own sizes have both)."""
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    attn = f.section("attn_config")
    alibi = attn is None or attn.flag("alibi", default=True)
    bias = not f.flag("no_bias", default=True)
    mixer = pieces.attention_in_one(hidden, heads, ("Wqkv", "out_proj"), qkv_bias=bias, o_bias=bias)
    width = f.whole("expansion_ratio", default=4) * hidden
    mlp = pieces.plain(hidden, width, names=("up_proj", "down_proj"), bias=bias)
    norm = 2 * hidden if bias else hidden
    one = pieces.layer(mixer, mlp, heads, norms=2, norm_params=norm)
    positions = 0 if alibi else f.whole("max_seq_len") * hidden
    return pieces.model(f, lambda _: one, tied=True, final_params=norm, position_params=positions)


def phi(f: Fields) -> Shape:
    hidden, heads = pieces.hidden_size(f), pieces.read_heads(f)
    mixer = pieces.attention(hidden, heads, qkv_bias=True, o_bias=True, o_name="dense")
    mlp = pieces.plain(hidden, f.whole("intermediate_size"), names=("fc1", "fc2"), bias=True)
    qk_norm = f.flag("qk_layernorm")

    def layer_at(_: int) -> Layer:
        return pieces.layer(
            mixer,
            mlp,
            heads,
            norms=1,
            norm_params=2 * hidden,
            qk_norm=qk_norm,
            other_params=4 * heads.dim if qk_norm else 0,
        )

    return pieces.model(f, layer_at, tied=False, final_params=2 * hidden, head_bias=True)


def starcoder2(f: Fields) -> Shape:
    hidden, heads, bias = pieces.hidden_size(f), pieces.read_heads(f), f.flag("use_bias", default=True)
    mixer = pieces.attention(hidden, heads, qkv_bias=bias, o_bias=bias)
    mlp = pieces.plain(hidden, f.whole("intermediate_size"), names=("c_fc", "c_proj"), bias=bias)
    windows = pieces.windows(f, pieces.everywhere)
    return decoder(f, mixer, mlp, heads, windows=windows, tied=True, norm_params=2 * hidden)
