"""Multi-head latent attention: DeepSeek 2 and 3, Kimi K2, GLM 4.7 Flash, Mistral 4."""

from collections.abc import Callable

from perrun.facts.families import moe, pieces
from perrun.facts.families.pieces import Heads, Mlp
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Linear, Shape


def latent_attention(f: Fields) -> tuple[tuple[Linear, ...], Heads, int]:
    """The matrices, the heads, and the weights of the norms over the latents."""
    hidden, bias = pieces.hidden_size(f), f.flag("attention_bias")
    q_heads = f.whole("num_attention_heads")
    nope, rope = f.whole("qk_nope_head_dim"), f.whole("qk_rope_head_dim")
    v_dim, kv_rank, q_rank = f.whole("v_head_dim"), f.whole("kv_lora_rank"), f.optional("q_lora_rank")
    heads = Heads(q_heads, q_heads, nope + rope, v_dim)
    q_out = q_heads * heads.dim
    if q_rank is None:
        queries = (Linear("q_proj", hidden, q_out, "attention"),)
    else:
        queries = (
            Linear("q_a_proj", hidden, q_rank, "attention", bias),
            Linear("q_b_proj", q_rank, q_out, "attention"),
        )
    mixer = (
        *queries,
        Linear("kv_a_proj_with_mqa", hidden, kv_rank + rope, "attention", bias),
        Linear("kv_b_proj", kv_rank, q_heads * (nope + v_dim), "attention"),
        Linear("o_proj", q_heads * v_dim, hidden, "attention", bias),
    )
    return mixer, heads, kv_rank + (q_rank or 0)


def _model(
    f: Fields,
    extra: tuple[Linear, ...] = (),
    extra_params: int = 0,
    *,
    mlp_at: Callable[[int], Mlp] | None = None,
    tied: bool = False,
) -> Shape:
    mixer, heads, latent_norms = latent_attention(f)
    hidden, mlp_at = pieces.hidden_size(f), mlp_at or moe.deepseek_mlps(f)

    def layer_at(i: int) -> Layer:
        return pieces.layer(
            mixer + extra,
            mlp_at(i),
            heads,
            norms=2,
            norm_params=hidden,
            other_params=latent_norms + extra_params,
            kind="mla",
        )

    return pieces.model(f, layer_at, tied=tied, final_params=hidden)


def deepseek(f: Fields) -> Shape:
    """DeepSeek 2 and 3, Kimi K2, Mistral 4."""
    return _model(f)


def glm4_moe_lite(f: Fields) -> Shape:
    """One leading dense layer where the file does not say."""
    return _model(f.with_defaults(first_k_dense_replace=1))


def deepseek_v32(f: Fields) -> Shape:
    """DeepSeek 3 with an indexer that picks the tokens to attend to."""
    n, dim = f.whole("index_n_heads"), f.whole("index_head_dim")
    hidden = pieces.hidden_size(f)
    indexer = (
        Linear("wq_b", f.whole("q_lora_rank"), n * dim, "attention"),
        Linear("wk", hidden, dim, "attention"),
        Linear("weights_proj", hidden, n, "attention"),
    )
    return _model(f, indexer, extra_params=2 * dim)


def glm_moe_dsa(f: Fields) -> Shape:
    """GLM 5: the same with three leading dense layers where the file does not say."""
    return deepseek_v32(f.with_defaults(first_k_dense_replace=3))


def minicpm3(f: Fields) -> Shape:
    """Latent attention over a dense MLP."""
    dense = pieces.gated(pieces.hidden_size(f), f.whole("intermediate_size"))
    return _model(f, mlp_at=pieces.always(dense), tied=True)
