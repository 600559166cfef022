"""The traced reference: the real model and adapters stepped on fake tensors, live bytes counted op by op.

Real are transformers' modelling code, peft's adapters, bitsandbytes' 4-bit layers, PyTorch's autograd and optimizers;
in place of CUDA kernels that the CPU lacks stand functions with the same outputs, saved tensors and workspaces, each
with its source (`cuda_ops`, `kernels`, `loss`, `optimizers`, `quant`).

bench/trace_vs_measured.py compares with measured peaks, bench/data/trace_families.csv says which families of
models.csv trace and why others don't (mostly: transformers has no code for them).

Not traced: sharded layouts (FSDP, ZeRO, tensor, pipeline, context or expert parallel), offload, compile, FP8,
selective checkpointing, TransformerEngine's and Unsloth's kernels: these raise InvalidInput. What data decides is
fixed: experts get equal shares, LLM.int8 finds no outlier columns, no token is masked. Linear attention and state
spaces run transformers' own PyTorch code, which keeps more than the kernels of flash-linear-attention or mamba-ssm.
Loading (shards beside quantised weights) is not stepped: `load` is what lies on the GPU afterwards.
"""

from perrun.trace.peak import TracedPeak, trace, versions
from perrun.trace.recipe import Recipe

__all__ = ["Recipe", "TracedPeak", "trace", "versions"]
