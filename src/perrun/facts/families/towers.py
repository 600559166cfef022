"""Parameters of vision and audio towers and their projectors: what a text-only step stores but never runs.

Counted from the modules of the classes in transformers 5.24, which the tests rebuild and compare.
"""

from perrun.facts.fields import Fields


def _linear(n_in: int, n_out: int, *, bias: bool = True) -> int:
    return n_in * n_out + (n_out if bias else 0)


def _square(*keys: str, default: int, f: Fields) -> int:
    return f.whole(*keys, default=default) ** 2


def qwen2_vl(vision: Fields, text_hidden: int) -> int:
    """Qwen 2 VL: LayerNorm, plain MLP; the merger joins 2 x 2 patches."""
    width = vision.whole("embed_dim", default=1280)
    inner = int(width * vision.number("mlp_ratio", default=4))
    block = (
        _linear(width, 3 * width) + _linear(width, width) + _linear(width, inner) + _linear(inner, width) + 4 * width
    )
    patch = 3 * vision.whole("temporal_patch_size", default=2) * _square("patch_size", default=14, f=vision) * width
    joined = width * _square("spatial_merge_size", default=2, f=vision)
    merger = 2 * width + _linear(joined, joined) + _linear(joined, vision.whole("hidden_size", default=text_hidden))
    return vision.whole("depth", default=32) * block + patch + merger


def qwen2_5_vl(vision: Fields, text_hidden: int) -> int:
    """Qwen 2.5 VL: RMSNorm, gated MLP."""
    width, inner = vision.whole("hidden_size", default=1280), vision.whole("intermediate_size", default=3420)
    mlp = 2 * _linear(width, inner) + _linear(inner, width)
    block = _linear(width, 3 * width) + _linear(width, width) + mlp + 2 * width
    patch = 3 * vision.whole("temporal_patch_size", default=2) * _square("patch_size", default=14, f=vision) * width
    joined = width * _square("spatial_merge_size", default=2, f=vision)
    merger = width + _linear(joined, joined) + _linear(joined, vision.whole("out_hidden_size", default=text_hidden))
    return vision.whole("depth", default=32) * block + patch + merger


def qwen3_vl(vision: Fields, text_hidden: int) -> int:
    """Qwen 3 VL and 3.5: learned positions, plain MLP, more mergers for layers fed into the text model."""
    width, inner = vision.whole("hidden_size", default=1152), vision.whole("intermediate_size", default=4304)
    mlp = _linear(width, inner) + _linear(inner, width)
    block = _linear(width, 3 * width) + _linear(width, width) + mlp + 4 * width
    pixels = vision.whole("in_channels", default=3) * vision.whole("temporal_patch_size", default=2)
    patch = _linear(pixels * _square("patch_size", default=16, f=vision), width)
    positions = vision.whole("num_position_embeddings", default=2304) * width
    joined = width * _square("spatial_merge_size", default=2, f=vision)
    merger = _linear(joined, joined) + _linear(joined, vision.whole("out_hidden_size", default=text_hidden))
    deep = len(vision.items("deepstack_visual_indexes") or ())
    mergers = (1 + deep) * merger + 2 * width + deep * 2 * joined
    return vision.whole("depth", default=27) * block + patch + positions + mergers


def siglip(vision: Fields, text_hidden: int) -> int:
    """Gemma 3's SigLIP, its pooling head unless switched off (the published models do), and the projector."""
    width, inner = vision.whole("hidden_size"), vision.whole("intermediate_size")
    block = 4 * _linear(width, width) + _linear(width, inner) + _linear(inner, width) + 4 * width
    side, size = vision.whole("patch_size"), vision.whole("image_size")
    patch = _linear(3 * side * side, width) + (size // side) ** 2 * width
    projector = width * text_hidden + width
    pooling = width + 4 * _linear(width, width) + 2 * width + _linear(width, inner) + _linear(inner, width)
    head = pooling if vision.flag("vision_use_head", default=True) else 0
    return vision.whole("num_hidden_layers") * block + patch + 2 * width + head + projector


def pixtral(vision: Fields, text_hidden: int) -> int:
    """Mistral 3's Pixtral, and the projector that joins 2 x 2 patches."""
    width, inner = vision.whole("hidden_size", default=1024), vision.whole("intermediate_size", default=4096)
    inner_attention = vision.whole("num_attention_heads", default=16) * vision.whole("head_dim", default=64)
    block = 4 * width * inner_attention + 3 * width * inner + 2 * width
    patch = 3 * _square("patch_size", default=16, f=vision) * width + width
    projector = width + width * 4 * width + text_hidden * width + text_hidden * text_hidden
    return vision.whole("num_hidden_layers", default=24) * block + patch + projector


def llama4(vision: Fields, text_hidden: int) -> int:
    """Llama 4's tower, pixel-shuffle adapter and projector; the defaults are those of both published models."""
    width, inner = vision.whole("hidden_size", default=1408), vision.whole("intermediate_size", default=5632)
    block = 4 * _linear(width, width) + _linear(width, inner) + _linear(inner, width) + 4 * width
    side = vision.whole("patch_size", default=14)
    positions = (vision.whole("image_size", default=336) // side) ** 2 + 1
    embed = 3 * side * side * width + width + positions * width + 4 * width
    adapter_in, adapter_out = (
        vision.whole("projector_input_dim", default=4096),
        vision.whole("projector_output_dim", default=4096),
    )
    adapter = inner * adapter_in + adapter_out * adapter_out
    projector = vision.whole("vision_output_dim", default=4096) * text_hidden
    return vision.whole("num_hidden_layers", default=34) * block + embed + adapter + projector


def gemma4(vision: Fields, text_hidden: int) -> int:
    """Gemma 4's vision tower: gated MLP, four norms, query and key norms, a position table for each axis."""
    width, inner = vision.whole("hidden_size"), vision.whole("intermediate_size")
    heads, dim = vision.whole("num_attention_heads"), vision.whole("head_dim")
    kv = vision.whole("num_key_value_heads", default=heads)
    block = 2 * width * heads * dim + 2 * width * kv * dim + 3 * width * inner + 4 * width + 2 * dim
    patch = 3 * _square("patch_size", default=16, f=vision) * width
    positions = 2 * vision.whole("position_embedding_size", default=10_240) * width
    return vision.whole("num_hidden_layers") * block + patch + positions + width * text_hidden


def gemma4_audio(audio: Fields, text_hidden: int) -> int:
    """Gemma 4's conformer: two half-step MLPs, local attention, a light convolution, two strided convolutions."""
    width = audio.whole("hidden_size", default=1024)
    head_dim = width // audio.whole("num_attention_heads", default=8)
    first, second = audio.items("subsampling_conv_channels") or (128, 32)
    mlps = 2 * (8 * width * width + 2 * width)
    attention = 5 * width * width + head_dim
    conv = 3 * width * width + width * audio.whole("conv_kernel_size", default=5) + 2 * width
    block = mlps + attention + conv + 3 * width
    # two 3 x 3 convolutions of stride 2 over 128 mel bands leave 32 bands of `second` channels
    subsample = first * 9 + first + first * second * 9 + second + second * 32 * width
    out = audio.whole("output_proj_dims", default=1536)
    return audio.whole("num_hidden_layers", default=12) * block + subsample + _linear(width, out) + out * text_hidden


# Vision (MobileNet V5) and audio (USM) towers of both published Gemma 3n with their projections. The published
# totals 5439438272 (E2B) and 7849978192 (E4B) less the text parts 4435182688 and 6835235568 leave 1004255584 and
# 1014742624; less the keys and values that the 10 and 15 sharing layers store unused (2097408 each) both leave this.
GEMMA3N_TOWERS = 983_281_504


def gemma3n(text: Fields) -> int:
    """Towers, and the unused k_proj, v_proj and k_norm that the checkpoint stores for layers that share them."""
    heads, dim = text.whole("num_key_value_heads", default=2), text.whole("head_dim", default=256)
    shared = text.whole("num_kv_shared_layers", default=15, minimum=0)
    unused = 2 * text.whole("hidden_size") * heads * dim + dim
    return GEMMA3N_TOWERS + shared * unused
