"""Which parameters a method trains, and how many: sums over the matrices of the shape."""

from typing import Any

from perrun.shapes import Layer, Linear, Shape

ATTENTION_NAMES = {
    "attn": None,
    "attn-qv": ("q", "v"),
    "attn-qkv": ("q", "k", "v"),
}
FUSED_QKV = ("qkv", "c_attn", "query_key_value", "wqkv", "w_pack", "in_proj")


def _is_fused_qkv(name: str) -> bool:
    return any(key in name.lower() for key in FUSED_QKV)


def _letter(name: str) -> str:
    """q, k, v or o of an attention matrix by its module name (q_proj, query, wq, ...)."""
    lowered = name.lower()
    if _is_fused_qkv(name):
        return "qkv"
    head = lowered.removeprefix("w").split("_")[0]
    return {"query": "q", "key": "k", "value": "v"}.get(head, head[:1])


def targeted(linear: Linear, targets: str, experts: bool = False) -> bool:
    """Whether LoRA with these targets adapts the matrix. experts: the stack's peft reaches fused expert tensors.

    targets: all-linear (every nn.Linear but the head), attn (all of attention), attn-qv, attn-qkv (fused
    projections count as hit), or module names joined by comma, plus or space. Fused expert tensors are no modules
    and are hit only where `experts` says so and the family is one that peft converts; there it takes gate_proj, up_proj
    and down_proj for theirs, and modules of these names are not hit. Source: peft, tuners/tuners_utils.py (all-linear
    and target_modules by suffix), utils/transformers_weight_conversion.py.
    """
    if linear.role == "expert" and not linear.is_module and not (experts and linear.adapter_ranks):
        return False
    if experts and linear.renamed:
        return False
    if not (linear.is_module or linear.role == "expert") or linear.role in ("head", "router"):
        return linear.role == "head" and linear.is_module and linear.name in _names(targets)
    if targets.startswith("all-linear"):
        return True
    if targets in ATTENTION_NAMES:
        if linear.role != "attention":
            return False
        wanted = ATTENTION_NAMES[targets]
        letter = _letter(linear.name)
        return wanted is None or letter == "qkv" or letter in wanted
    return linear.name in _names(targets)


def _names(targets: str) -> tuple[str, ...]:
    for separator in ("+", " ", ";"):
        targets = targets.replace(separator, ",")
    names = [name.strip() for name in targets.split(",") if name.strip()]
    return tuple(name for short in names for name in (short, f"{short}_proj"))


def adapter_params(linear: Linear, rank: Any, dora: bool = False) -> Any:
    """LoRA parameters on one matrix: A [rank, in] and B [out, rank]; DoRA adds a magnitude [out].

    Source: LoRA, arXiv 2106.09685 section 4.1; DoRA, arXiv 2402.09353 section 3.
    """
    ranks = rank if linear.is_module else rank * linear.adapter_ranks
    one = ranks * (linear.in_features + linear.out_features) + (linear.out_features if dora else 0)
    return linear.copies * one


def adapters_of(layer: Layer, targets: str, rank: Any, dora: bool = False, experts: bool = False) -> Any:
    """Adapter parameters of one layer; linear in the rank, which may be an array."""
    hit = [m for m in layer.linears if targeted(m, targets, experts)]
    per_rank = sum(adapter_params(m, 1) for m in hit)
    magnitudes = sum(m.copies * m.out_features for m in hit) if dora else 0
    return float(per_rank) * rank + float(magnitudes)


def adapters_total(shape: Shape, targets: str, rank: Any, dora: bool = False, experts: bool = False) -> Any:
    """Adapter parameters of the whole model; linear in the rank, which may be an array."""
    per_rank = sum(layer.count * adapters_of(layer, targets, 1.0, experts=experts) for layer in shape.layers)
    magnitudes = 0.0
    if dora:
        magnitudes = sum(layer.count * adapters_of(layer, targets, 0.0, dora, experts) for layer in shape.layers)
    return per_rank * rank + magnitudes


def quantisable(shape: Shape, experts: bool) -> tuple[float, float]:
    """Weights and output rows of all matrices that a k-bit loader replaces: every nn.Linear but the head.

    experts: the stack holds experts as modules too (transformers 4.x) or quantises fused ones itself. Otherwise
    fused expert tensors keep their dtype. Source: transformers, integrations/bitsandbytes.py
    (replace_with_bnb_linear keeps lm_head).
    """
    weights = rows = 0.0
    for layer in shape.layers:
        for m in layer.linears:
            if (m.is_module or experts) and m.role != "head":
                weights += layer.count * m.weights
                rows += layer.count * m.copies * m.out_features
    return weights, rows
