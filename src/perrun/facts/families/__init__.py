"""Which reader understands which `model_type`: one small function per family that truly differs.

A reader takes the fields of the language part of a config.json and returns its Shape. Modules are imported when
the first model of theirs is read, so that asking for one model stays fast.
"""

from collections.abc import Callable
from importlib import import_module

from perrun.facts.fields import Fields
from perrun.shapes import Norm, Shape

Reader = Callable[[Fields], Shape]

# model_type -> module of this package and function in it
READERS: dict[str, str] = {
    "afmoe": "moe.afmoe",
    "apertus": "llama.apertus",
    "arcee": "llama.arcee",
    "baichuan": "llama.baichuan",
    "bamba": "ssm.bamba",
    "bloom": "gpt.bloom",
    "chatglm": "llama.chatglm",
    "codegen": "gpt.codegen",
    "cohere": "llama.cohere",
    "cohere2": "llama.cohere",
    "deepseek_v2": "mla.deepseek",
    "deepseek_v3": "mla.deepseek",
    "deepseek_v32": "mla.deepseek_v32",
    "dots1": "moe.dots1",
    "ernie4_5": "llama.ernie4_5",
    "ernie4_5_moe": "moe.ernie4_5_moe",
    "exaone4": "llama.exaone4",
    "falcon": "gpt.falcon",
    "falcon_mamba": "ssm.mamba",
    "flex_olmo": "moe.olmoe",
    "gemma": "llama.gemma",
    "gemma2": "llama.gemma2",
    "gemma3_text": "llama.gemma3",
    "gemma3n_text": "gemma.gemma3n",
    "gemma4_text": "gemma.gemma4",
    "glm": "llama.glm",
    "glm4": "llama.glm4",
    "glm4_moe": "moe.glm4_moe",
    "glm4_moe_lite": "mla.glm4_moe_lite",
    "glm_moe_dsa": "mla.glm_moe_dsa",
    "gpt2": "gpt.gpt2",
    "gpt_bigcode": "gpt.gpt_bigcode",
    "gpt_neo": "gpt.gpt_neo",
    "gpt_neox": "gpt.gpt_neox",
    "gpt_oss": "moe.gpt_oss",
    "gptj": "gpt.gptj",
    "granite": "llama.llama",
    "granitemoe": "moe.granitemoe",
    "granitemoehybrid": "hybrid.granitemoehybrid",
    "granitemoeshared": "moe.granitemoe",
    "helium": "llama.llama",
    "hunyuan_v1_dense": "llama.hunyuan",
    "internlm2": "llama.internlm2",
    "internlm3": "llama.llama",
    "jamba": "ssm.jamba",
    "kimi_k2": "mla.deepseek",
    "kimi_linear": "hybrid.kimi_linear",
    "lfm2": "hybrid.lfm2",
    "lfm2_moe": "hybrid.lfm2_moe",
    "llama": "llama.llama",
    "llama4_text": "moe.llama4",
    "mamba": "ssm.mamba",
    "mamba2": "ssm.mamba2",
    "mimo": "llama.qwen2",
    "minicpm": "llama.minicpm",
    "minicpm3": "mla.minicpm3",
    "minimax_m2": "moe.olmoe",
    "ministral": "llama.mistral",
    "ministral3": "llama.llama",
    "mistral": "llama.mistral",
    "mistral4": "mla.deepseek",
    "mixtral": "moe.mixtral",
    "mpt": "gpt.mpt",
    "nemotron": "llama.nemotron",
    "nemotron_h": "hybrid.nemotron_h",
    "olmo": "llama.olmo",
    "olmo2": "llama.olmo2",
    "olmo3": "llama.olmo3",
    "olmoe": "moe.olmoe",
    "opt": "gpt.opt",
    "phi": "gpt.phi",
    "phi3": "llama.phi3",
    "phimoe": "moe.phimoe",
    "qwen": "llama.qwen",
    "qwen2": "llama.qwen2",
    "qwen2_moe": "moe.qwen2_moe",
    "qwen3": "llama.qwen3",
    "qwen3_5_moe_text": "hybrid.qwen3_5_moe",
    "qwen3_5_text": "hybrid.qwen3_5",
    "qwen3_moe": "moe.qwen3_moe",
    "qwen3_next": "hybrid.qwen3_next",
    "seed_oss": "llama.seed_oss",
    "smollm3": "llama.smollm3",
    "stablelm": "llama.stablelm",
    "starcoder2": "gpt.starcoder2",
}

# Mixtures whose fused expert tensors peft 0.21 reaches with all-linear LoRA, with twice the rank where gate and up are
# one tensor. Source: huggingface/peft, utils/transformers_weight_conversion.py (targets by conversion pattern).
PEFT_REACHES_EXPERTS = frozenset(
    [
        "afmoe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4_moe_lite",
        "hunyuan_v1_moe",
        "longcat_flash",
        "minimax",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "qwen2_moe",
        "qwen3_moe",
        "qwen3_next",
    ]
)

# Module names that become names of fused tensors there (as above, _MOE_TARGET_MODULE_MAPPING): dense MLPs and shared
# experts that bear them are not adapted.
PEFT_RENAMES = frozenset({"gate_proj", "up_proj", "down_proj"})
# Families that choose experts in fp32. Source: transformers modelling code (F.linear of the float32 hidden states).
ROUTER_FP32 = frozenset(
    [
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "kimi_linear",
        "nemotron_h",
    ]
)

# What eager attention and activations do beside the usual. Source: transformers modelling code of each
# (eager_attention_forward), transformers/activations.py (NewGELUActivation, FastGELUActivation).
SOFTMAX_AS_IS = frozenset({"falcon", "gpt2", "gpt_oss"})
DROPS_SCORES = frozenset({"gpt2", "gpt_bigcode"})
GATED_TENSORS = {"gpt_oss": 4}  # clamped gate and up, sigmoid, their products (GptOssExperts._apply_gate)
COMPOSED = frozenset({"gelu_new", "gelu_fast"})
_SILENT = ("codegen", "gpt2", "gpt_neo", "gptj", "phi")  # whose config may not say its activation
ACTIVATION: dict[str, str] = dict.fromkeys(_SILENT, "gelu_new")

FUSED_QKV = frozenset({"falcon", "gpt_neox", "phi3"})
# By which name a config says how much of a branch's output is dropped in training, and what its class takes if silent.
RESIDUAL_DROPOUT: dict[str, tuple[str, float]] = {
    "gpt2": ("resid_pdrop", 0.1),
    "gpt_bigcode": ("resid_pdrop", 0.1),
    "gpt_neo": ("resid_dropout", 0.0),
    "gptj": ("resid_pdrop", 0.0),
    "opt": ("dropout", 0.1),
    "phi": ("resid_pdrop", 0.0),
    "phi3": ("resid_pdrop", 0.0),
    "starcoder2": ("residual_dropout", 0.0),
}

# Norms of families that do not use Llama's RMSNorm. Source: transformers modelling code of each; models.csv norm_type
# says which are layer norms.
RMS_FP32 = frozenset(
    (
        "afmoe",
        "flex_olmo",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_text",
        "gpt_oss",
        "helium",
        "nemotron_h",
        "olmo2",
        "olmo3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    )
)
LAYER_FP32 = frozenset({"cohere", "cohere2"})
LAYER_NORM = frozenset(
    (
        "bloom",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "olmo",
        "opt",
        "phi",
        "phimoe",
        "stablelm",
        "starcoder2",
    )
)


def norm_of(model_type: str) -> Norm:
    """Which norm the code of a family uses (see `Layer.norm`)."""
    if model_type in LAYER_NORM:
        return "layer"
    if model_type in LAYER_FP32:
        return "layer-fp32"
    return "rms-fp32" if model_type in RMS_FP32 else "rms"


# wrapper's model_type -> model_type of its language part, tower counter (or None: text only)
WRAPPERS: dict[str, tuple[str, str | None]] = {
    "gemma3": ("gemma3_text", "siglip"),
    "gemma3n": ("gemma3n_text", None),
    "gemma4": ("gemma4_text", "gemma4"),
    "llama4": ("llama4_text", "llama4"),
    "mistral3": ("mistral", "pixtral"),
    "qwen2_5_vl": ("qwen2", "qwen2_5_vl"),
    "qwen2_vl": ("qwen2", "qwen2_vl"),
    "qwen3_5": ("qwen3_5_text", "qwen3_vl"),
    "qwen3_5_moe": ("qwen3_5_moe_text", "qwen3_vl"),
    "qwen3_vl": ("qwen3", "qwen3_vl"),
    "qwen3_vl_moe": ("qwen3_moe", "qwen3_vl"),
}


def reader(model_type: str) -> Reader | None:
    """The reader of a language part's model_type, None when there is none."""
    if model_type not in READERS:
        return None
    module, function = READERS[model_type].split(".")
    return getattr(import_module(f"{__name__}.{module}"), function)
