"""A row of models.csv as the config.json that its model would have, so that one set of readers serves both."""

import json
from typing import Any, cast

_STANDARD = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "moe_experts": "num_experts",
    "moe_top_k": "num_experts_per_tok",
    "moe_intermediate_size": "moe_intermediate_size",
    "dense_layers_first": "first_k_dense_replace",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}

# Column -> key where a model_type spells it otherwise; "" drops a column that the class derives itself.
_NO_HEAD_DIM = {"head_dim": ""}
_NO_GROUPS = {"num_kv_heads": "", "head_dim": ""}
_GPT2 = {
    **_NO_GROUPS,
    "hidden_size": "n_embd",
    "num_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_LATENT = {"head_dim": "", "moe_experts": "n_routed_experts"}
_FEW_EXPERTS = {"moe_experts": "num_local_experts", "moe_intermediate_size": ""}
_SPELLING: dict[str, dict[str, str]] = {
    "bloom": {
        **_NO_GROUPS,
        "num_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "",
        "max_position_embeddings": "seq_length",
    },
    "chatglm": {
        "num_layers": "num_layers",
        "num_kv_heads": "multi_query_group_num",
        "head_dim": "kv_channels",
        "intermediate_size": "ffn_hidden_size",
        "vocab_size": "padded_vocab_size",
        "max_position_embeddings": "seq_length",
    },
    "cohere": _NO_HEAD_DIM,
    "cohere2": _NO_HEAD_DIM,
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "falcon": {**_NO_HEAD_DIM, "num_kv_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"},
    "gemma4": {"moe_top_k": "top_k_experts"},
    "glm4_moe": {"moe_experts": "n_routed_experts"},
    "glm4_moe_lite": _LATENT,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": _NO_GROUPS,
    "gpt_oss": _FEW_EXPERTS,
    "gptj": _GPT2,
    "granitemoe": _FEW_EXPERTS,
    "granitemoehybrid": {**_FEW_EXPERTS, "head_dim": ""},
    "granitemoeshared": _FEW_EXPERTS,
    "kimi_k2": _LATENT,
    "kimi_linear": {"head_dim": ""},
    "llama4": {"moe_experts": "num_local_experts", "moe_intermediate_size": ""},
    "mistral4": _LATENT,
    "mixtral": _FEW_EXPERTS,
    "mpt": {
        **_NO_GROUPS,
        "hidden_size": "d_model",
        "num_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "",
        "max_position_embeddings": "max_seq_len",
    },
    "nemotron_h": {"moe_experts": "n_routed_experts"},
    "olmoe": {**_NO_HEAD_DIM, "moe_intermediate_size": ""},
    "opt": {**_NO_GROUPS, "intermediate_size": "ffn_dim"},
    "phi": _NO_HEAD_DIM,
    "phi3": _NO_HEAD_DIM,
    "phimoe": {**_NO_HEAD_DIM, **_FEW_EXPERTS},
    "qwen": {"num_kv_heads": "", "head_dim": "kv_channels"},
    "qwen2": _NO_HEAD_DIM,
    "qwen2_5_vl": _NO_HEAD_DIM,
    "qwen2_moe": _NO_HEAD_DIM,
    "stablelm": _NO_HEAD_DIM,
    "starcoder2": _NO_HEAD_DIM,
}

# Flags that a model_type keeps under a name of its own, by what the attention_bias and qk_norm columns say.
_BIAS_FLAG = {"stablelm": "use_qkv_bias"}
_HAS_BIAS_FLAG = {"llama", "glm", "glm4", "glm4_moe", "phimoe", "gpt_oss", "stablelm", "cohere", "granite"}
_NORM_FLAG = {"cohere": "use_qk_norm", "stablelm": "qk_layernorm", "glm4_moe": "use_qk_norm", "llama4": "use_qk_norm"}
_SHARED = {
    "granitemoehybrid": "shared_intermediate_size",
    "granitemoeshared": "shared_intermediate_size",
    "nemotron_h": "moe_shared_expert_intermediate_size",
    "qwen2_moe": "shared_expert_intermediate_size",
    "qwen3_5_moe": "shared_expert_intermediate_size",
    "qwen3_next": "shared_expert_intermediate_size",
}
_WITH_TEXT_CONFIG = {
    "gemma3",
    "gemma3n",
    "gemma4",
    "llama4",
    "mistral3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
}


def _shared_experts(row: dict[str, str]) -> dict[str, int]:
    """The cell '2 x 1408 ...': how many and how wide; a class wants the total width or the number."""
    words = row["shared_experts"].split(" ")
    if len(words) < 3:
        return {}
    number, width = int(words[0]), int(words[2])
    if row["model_type"] in _SHARED:
        return {_SHARED[row["model_type"]]: number * width}
    return {"n_shared_experts": number} if row["kv_lora_rank"] or row["model_type"] == "glm4_moe" else {}


def _window(row: dict[str, str]) -> dict[str, int | None]:
    """The first number of the sliding_window cell; its words are for readers, the pattern is the class's."""
    numbers = [word for word in row["sliding_window"].split(" ") if word.isdigit()]
    if not numbers:
        return {"sliding_window": None} if row["model_type"] in ("mistral", "mistral3") else {}
    return {"attention_chunk_size" if "chunked" in row["sliding_window"] else "sliding_window": int(numbers[0])}


def _merge(config: dict[str, Any], extra: dict[str, Any]) -> None:
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _merge(config[key], cast("dict[str, Any]", value))
        else:
            config[key] = value


def config_of(row: dict[str, str]) -> dict[str, Any]:
    """The config.json facts of a row of models.csv, in the names that its model_type uses.

    The `config` cell holds, as JSON, what no column says (layer patterns, state-space sizes, towers).
    """
    model_type = row["model_type"]
    spelling = {**_STANDARD, **_SPELLING.get(model_type, {})}
    text: dict[str, Any] = {key: int(row[column]) for column, key in spelling.items() if key and row[column].isdigit()}
    text.update(_window(row))
    text.update(_shared_experts(row))
    if row["kv_lora_rank"]:
        text.setdefault("q_lora_rank", None)  # the classes have a rank where the key is missing
    if model_type in _HAS_BIAS_FLAG:
        text[_BIAS_FLAG.get(model_type, "attention_bias")] = row["attention_bias"] != "no"
    if model_type in _NORM_FLAG:
        text[_NORM_FLAG[model_type]] = row["qk_norm"] == "yes"
    config: dict[str, Any] = {"text_config": text} if model_type in _WITH_TEXT_CONFIG else text
    config["model_type"] = model_type
    config["architectures"] = [row["architecture"]]
    config["tie_word_embeddings"] = row["tie_word_embeddings"] == "yes"
    config["torch_dtype"] = row["native_dtype"]
    _merge(config, json.loads(row["config"]) if row["config"] else {})
    return config
