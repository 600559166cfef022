"""The shape of a transformer as plain numbers: what physics walks over.

A model is a list of layer groups; a layer is a list of weight matrices plus what its mixer and norms are.
Everything that memory and speed need (parameters, FLOPs, adapters, quantised bytes, saved activations)
is a sum over these matrices, so no architecture needs a law of its own.
"""

from dataclasses import dataclass
from typing import Literal

Role = Literal["attention", "mlp", "expert", "shared_expert", "router", "head"]
Mixer = Literal["attention", "mla", "linear_attention", "mamba", "none"]
MlpKind = Literal["gated", "plain", "moe", "none"]
Norm = Literal["rms", "rms-fp32", "layer", "layer-fp32"]


@dataclass(frozen=True, slots=True)
class Linear:
    """One weight matrix [out_features, in_features] of a layer, or `copies` of it (routed experts).

    `name` is the module's name as LoRA targets call it (q_proj, gate_proj, ...). `active` is how many of the
    copies one token passes through (top_k for routed experts, 1 otherwise). `is_module` says whether the
    installed modelling code holds it as an `nn.Linear`: fused expert tensors are not, so neither adapters
    ("all-linear") nor 4-bit loading reach them as such; `adapter_ranks` is then how many times the rank peft's LoRA on
    the fused tensor has (2 where gate and up are one tensor; 0: peft does not reach it). `renamed`: the module bears a
    name that peft, where it reaches fused experts, takes for theirs, so that no adapter comes to this module.
    """

    name: str
    in_features: int
    out_features: int
    role: Role
    bias: bool = False
    copies: int = 1
    active: int = 1
    is_module: bool = True
    adapter_ranks: int = 0
    renamed: bool = False

    @property
    def weights(self) -> int:
        """Parameters of all copies, without biases."""
        return self.copies * self.in_features * self.out_features

    @property
    def params(self) -> int:
        """Parameters of all copies, biases included."""
        return self.weights + (self.copies * self.out_features if self.bias else 0)


@dataclass(frozen=True, slots=True)
class Layer:
    """`count` equal decoder layers.

    heads, kv_heads, head_dim: of the mixer (head_dim of queries and keys; v_head_dim of values).
    window: tokens that a query sees (sliding window or chunk), None for all earlier ones.
    norms: norms over the residual stream [tokens, hidden]; norm: of which kind. "rms" turns its result to 16 bits
    before it multiplies by its weight, "rms-fp32" after; "layer" is a fused kernel, "layer-fp32" is written out.
    score_softcap: eager attention squashes its scores (one more copy of them). softmax_fp32: it takes their softmax in
    fp32. score_dropout: it drops some of them in training. activation_tensors: tensors that the MLP's activation
    keeps (1 for a kernel, 4 where tanh-GELU is composed of elementary operations). fused_qkv: queries, keys and values
    are views of one matrix's output, of which the first two are turned. residual_dropout: what the branches write back
    is dropped in training. router_fp32: experts are chosen in fp32.
    other_params: whatever is no matrix here (norm weights, convolutions, gates, decays, sinks).
    intermediate: width between the two MLP matrices that one token sees, summed over active experts.
    """

    count: int
    linears: tuple[Linear, ...]
    mixer: Mixer
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None
    norms: int
    qk_norm: bool
    mlp: MlpKind
    intermediate: int
    other_params: int
    norm: Norm = "rms"
    score_softcap: bool = False
    softmax_fp32: bool = True
    score_dropout: bool = False
    activation_tensors: int = 1
    fused_qkv: bool = False
    residual_dropout: bool = False
    router_fp32: bool = False

    @property
    def params(self) -> int:
        """Parameters of one of the equal layers."""
        return sum(m.params for m in self.linears) + self.other_params


@dataclass(frozen=True, slots=True)
class Shape:
    """The whole model: embedding, layer groups, head.

    head_weights is 0 when the head is tied to the embedding (counted once, used twice).
    position_params: learned absolute positions, per-layer embeddings; final_params: last norm and the like;
    tower_params: vision or audio towers and other parts that a text-only step never runs.
    softcap: the model squashes its logits (one more fp32 copy of them in eager code).
    """

    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tied: bool
    head_bias: bool
    embedding_params: int
    position_params: int
    final_params: int
    tower_params: int
    softcap: bool = False

    @property
    def head_weights(self) -> int:
        return 0 if self.tied else self.hidden_size * self.vocab_size

    @property
    def n_layers(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def layer_params(self) -> int:
        return sum(layer.count * layer.params for layer in self.layers)

    @property
    def text_params(self) -> int:
        """Parameters that a text step touches or stores, tied weights counted once."""
        head = self.head_weights + (self.vocab_size if self.head_bias else 0)
        return self.embedding_params + self.position_params + self.layer_params + self.final_params + head

    @property
    def total_params(self) -> int:
        return self.text_params + self.tower_params

    @property
    def active_params(self) -> int:
        """text_params less the experts that a token does not pass through."""
        idle = sum(
            layer.count * (m.copies - m.active) * (m.params // m.copies) for layer in self.layers for m in layer.linears
        )
        return self.text_params - idle
