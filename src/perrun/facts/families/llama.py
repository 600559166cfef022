"""Llama and its many descendants: RMSNorm, rotary positions, grouped-query attention, gated MLP."""

from collections.abc import Callable

from perrun.facts.families import pieces
from perrun.facts.fields import Fields
from perrun.shapes import Layer, Shape


def _decoder(
    f: Fields,
    *,
    windows: list[int | None],
    tied: bool = False,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    norms: int = 2,
    head_dim: int | None = None,
    softcap: bool = False,
) -> Shape:
    hidden = f.whole("hidden_size")
    heads = pieces.read_heads(f, head_dim=head_dim)
    mixer = pieces.attention(hidden, heads, qkv_bias=qkv_bias, o_bias=o_bias)
    mlp = pieces.gated(hidden, f.whole("intermediate_size"), bias=mlp_bias)

    def layer_at(i: int) -> Layer:
        return pieces.layer(
            mixer,
            mlp,
            heads,
            norms=norms,
            norm_params=hidden,
            window=windows[i],
            qk_norm=qk_norm,
            other_params=2 * heads.dim if qk_norm else 0,
        )

    return pieces.model(f, layer_at, tied=tied, final_params=hidden, softcap=softcap)


def _all(_: int) -> bool:
    return True


def _none(_: int) -> bool:
    return False


def _every(n: int) -> Callable[[int], bool]:
    """Local on all but every n-th layer."""
    return lambda i: (i + 1) % n != 0


def llama(f: Fields) -> Shape:
    bias = f.flag("attention_bias")
    return _decoder(f, windows=pieces.windows(f, _none), qkv_bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"))


def mistral(f: Fields) -> Shape:
    return _decoder(f, windows=pieces.windows(f, _all))


def _qwen_windows(f: Fields) -> list[int | None]:
    first = f.whole("max_window_layers", default=28, minimum=0)
    slides = f.flag("use_sliding_window")
    return pieces.windows(f, lambda i: slides and i >= first)


def qwen2(f: Fields) -> Shape:
    return _decoder(f, windows=_qwen_windows(f), qkv_bias=True)


def qwen3(f: Fields) -> Shape:
    bias = f.flag("attention_bias")
    return _decoder(f, windows=_qwen_windows(f), qkv_bias=bias, o_bias=bias, qk_norm=True)


def gemma(f: Fields) -> Shape:
    bias = f.flag("attention_bias")
    return _decoder(f, windows=pieces.windows(f, _none), tied=True, head_dim=256, qkv_bias=bias, o_bias=bias)


def gemma2(f: Fields) -> Shape:
    bias = f.flag("attention_bias")
    return _decoder(
        f,
        windows=pieces.windows(f, _every(2)),
        tied=True,
        head_dim=256,
        norms=4,
        qkv_bias=bias,
        o_bias=bias,
        softcap=f.has("final_logit_softcapping"),
    )


def gemma3_text(f: Fields) -> Shape:
    bias = f.flag("attention_bias")
    return _decoder(
        f,
        windows=pieces.windows(f, _every(f.whole("sliding_window_pattern", default=6))),
        tied=True,
        head_dim=256,
        norms=4,
        qk_norm=True,
        qkv_bias=bias,
        o_bias=bias,
        softcap=f.has("final_logit_softcapping"),
    )
