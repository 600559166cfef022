"""A config.json becomes a Model: exact counts, real module names, windows, and clear complaints."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun.errors import InvalidInput, PerrunError, UnsupportedModel
from perrun.facts import fetch, hub
from perrun.shapes import Layer, Linear

CONFIGS = Path(__file__).with_name("data") / "configs"
INDEX = list(csv.DictReader((CONFIGS / "index.csv").read_text().splitlines()))

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}


def published(id: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{id.replace('/', '__')}.json").read_text())


@pytest.mark.parametrize("row", INDEX, ids=[row["id"] for row in INDEX])
def test_published_configs_count_as_transformers_builds_them(row: dict[str, str]) -> None:
    model = hub.from_config(json.loads((CONFIGS / row["file"]).read_text()), row["id"])
    assert model.total_params == int(row["meta_params"])
    assert model.source == "config.json"


def test_a_small_llama_by_hand() -> None:
    shape = hub.from_config(LLAMA, "by hand").shape
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64  # q, k and v of 2 x 16, o
    mlp = 3 * 64 * 128
    layer = attention + mlp + 2 * 64  # two norms
    assert shape.layers[0].params == layer
    assert shape.total_params == 2 * 1000 * 64 + 2 * layer + 64


def test_tied_embeddings_are_counted_once() -> None:
    tied = hub.from_config({**LLAMA, "tie_word_embeddings": True}, "tied").shape
    assert hub.from_config(LLAMA, "untied").shape.total_params - tied.total_params == 64 * 1000


def names(layer: Layer) -> dict[str, Linear]:
    return {linear.name: linear for linear in layer.linears}


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
        ("microsoft/phi-4", "qkv_proj o_proj gate_up_proj down_proj"),
        ("openai-community/gpt2", "c_attn c_proj c_fc c_proj"),
        ("EleutherAI/gpt-j-6b", "q_proj k_proj v_proj out_proj fc_in fc_out"),
        ("internlm/internlm2_5-7b-chat", "wqkv wo w1 w3 w2"),
        ("deepseek-ai/DeepSeek-V2-Lite", "q_proj kv_a_proj_with_mqa kv_b_proj o_proj gate_proj up_proj down_proj"),
    ],
)
def test_matrices_bear_the_names_that_adapters_target(id: str, expected: str) -> None:
    layer = hub.from_config(published(id), id).shape.layers[0]
    assert [linear.name for linear in layer.linears] == expected.split()
    assert all(linear.is_module for linear in layer.linears)


def test_experts_are_tensors_and_no_modules() -> None:
    mixtral = hub.from_config(published("mistralai/Mixtral-8x7B-v0.1"), "mixtral").shape.layers[0]
    experts = [linear for linear in mixtral.linears if linear.role == "expert"]
    assert [(e.name, e.copies, e.active, e.is_module) for e in experts] == [
        ("gate_up_proj", 8, 2, False),
        ("down_proj", 8, 2, False),
    ]
    assert mixtral.intermediate == 2 * 14336
    assert not names(mixtral)["gate"].is_module


def test_shared_experts_and_leading_dense_layers() -> None:
    dense, sparse = hub.from_config(published("deepseek-ai/DeepSeek-V3"), "v3").shape.layers
    assert (dense.count, dense.mlp, dense.mixer) == (3, "gated", "mla")
    assert (sparse.count, sparse.mlp, sparse.intermediate) == (58, "moe", 8 * 2048 + 2048)
    assert (sparse.head_dim, sparse.v_head_dim) == (128 + 64, 128)
    assert [linear.name for linear in sparse.linears if linear.role == "shared_expert"] == [
        "gate_proj",
        "up_proj",
        "down_proj",
    ]


@pytest.mark.parametrize(
    ("id", "windows"),
    [
        ("mistralai/Mistral-7B-Instruct-v0.3", {None: 32}),
        ("google/gemma-2-9b-it", {4096: 21, None: 21}),
        ("google/gemma-3-1b-it", {512: 22, None: 4}),
        ("openai/gpt-oss-20b", {128: 12, None: 12}),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {8192: 36, None: 12}),
        ("Qwen/Qwen2.5-7B-Instruct", {None: 28}),  # use_sliding_window is false
        ("bigcode/starcoder2-7b", {4096: 32}),
        ("allenai/Olmo-3.1-32B-Instruct", {4096: 48, None: 16}),
    ],
)
def test_windows_are_those_of_the_pattern(id: str, windows: dict[int | None, int]) -> None:
    layers = hub.from_config(published(id), id).shape.layers
    assert {layer.window: layer.count for layer in layers} == windows


def test_a_silent_mistral_slides_and_a_null_one_does_not() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    assert hub.from_config(mistral, "silent").shape.layers[0].window == 4096
    assert hub.from_config({**mistral, "sliding_window": None}, "null").shape.layers[0].window is None


@pytest.mark.parametrize(
    ("id", "mixers"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"linear_attention": 36, "attention": 12}),
        ("Qwen/Qwen3.5-9B", {"linear_attention": 24, "attention": 8}),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"mamba": 23, "attention": 6, "none": 23}),
    ],
)
def test_hybrids_mix_as_their_pattern_says(id: str, mixers: dict[str, int]) -> None:
    layers = hub.from_config(published(id), id).shape.layers
    assert {layer.mixer: layer.count for layer in layers} == mixers


def test_a_tower_stands_apart_from_what_a_text_step_runs() -> None:
    shape = hub.from_config(published("Qwen/Qwen3-VL-8B-Instruct"), "vl").shape
    assert shape.text_params == 8_190_735_360  # Qwen3-8B
    assert shape.tower_params == shape.total_params - shape.text_params > 0


def test_gemma_squashes_its_logits_and_llama_does_not() -> None:
    assert hub.from_config(published("google/gemma-2-9b-it"), "gemma").shape.softcap
    assert not hub.from_config(LLAMA, "llama").shape.softcap


@pytest.mark.parametrize(
    ("extra", "scheme"),
    [({}, None), ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq")],
)
def test_the_stored_scheme_is_read(extra: dict[str, Any], scheme: str | None) -> None:
    assert hub.from_config({**LLAMA, **extra}, "x").stored_quantization == scheme


def test_the_dtype_is_what_the_file_says_else_float32() -> None:
    assert hub.from_config({**LLAMA, "torch_dtype": "float16"}, "x").native_dtype == "float16"
    assert hub.from_config({**LLAMA, "dtype": "bfloat16"}, "x").native_dtype == "bfloat16"
    assert hub.from_config(LLAMA, "x").native_dtype == "float32"


def test_an_unknown_causal_model_with_llama_fields_is_read_as_llama_and_says_so() -> None:
    config = {**LLAMA, "model_type": "brandnew", "architectures": ["BrandNewForCausalLM"]}
    model = hub.from_config(config, "new")
    assert model.total_params == hub.from_config(LLAMA, "x").total_params
    assert "llama-like" in model.source


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["BrandNewModel"]},
        {"architectures": []},
        {"num_experts": 8},
        {"kv_lora_rank": 512},
        {"ssm_state_size": 16},
        {"intermediate_size": None},
    ],
)
def test_an_unknown_model_is_not_guessed_where_something_speaks_against_it(change: dict[str, Any]) -> None:
    config = {**LLAMA, "model_type": "brandnew", "architectures": ["BrandNewForCausalLM"], **change}
    with pytest.raises(UnsupportedModel, match="brandnew"):
        hub.from_config(config, "new")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768},
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
        {**LLAMA, "architectures": ["LlamaForSequenceClassification"]},
        {**LLAMA, "is_encoder_decoder": True},
    ],
)
def test_what_is_no_causal_language_model_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        hub.from_config(config, "other")
    assert "causal language model" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", -64),
        ("hidden_size", 0),
        ("hidden_size", "64"),
        ("hidden_size", 64.5),
        ("hidden_size", True),
        ("hidden_size", 10**12),
        ("hidden_size", 66),  # no multiple of 4 heads
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", -1),
        ("num_key_value_heads", 3),  # no divisor of 4 heads
        ("vocab_size", None),
        ("vocab_size", 10**9),
        ("intermediate_size", []),
        ("attention_bias", "yes"),
        ("torch_dtype", 16),
        ("architectures", "LlamaForCausalLM"),
        ("quantization_config", "gptq"),
        ("layer_types", ["full_attention"]),  # one entry for two layers
    ],
)
def test_a_value_that_is_not_allowed_names_its_key(key: str, value: Any) -> None:
    config = {**LLAMA, "sliding_window": 16, key: value}
    with pytest.raises(InvalidInput) as caught:
        hub.from_config(config, "broken")
    assert key in caught.value.what
    assert "broken" in caught.value.what
    assert caught.value.expected


def test_a_nested_key_is_named_with_its_section() -> None:
    config = published("Qwen/Qwen3-VL-8B-Instruct")
    config["text_config"]["hidden_size"] = -1
    with pytest.raises(InvalidInput, match=r"text_config\.hidden_size"):
        hub.from_config(config, "broken")


def test_more_experts_than_there_are_is_refused() -> None:
    config = {**published("mistralai/Mixtral-8x7B-v0.1"), "num_experts_per_tok": 9}
    with pytest.raises(InvalidInput, match="num_experts_per_tok"):
        hub.from_config(config, "broken")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"llama"', "null", "3"])
def test_a_file_that_is_no_json_object_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInput, match="JSON"):
        fetch.read(tmp_path)


@pytest.mark.parametrize("config", [{}, {"hidden_size": 64}, {"model_type": None}, {"model_type": 3}])
def test_a_config_without_model_type_says_so(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="model_type"):
        hub.from_config(config, "broken")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(row=st.sampled_from(INDEX), data=st.data())
def test_whatever_stands_in_a_config_is_read_or_refused_in_words(row: dict[str, str], data: st.DataObject) -> None:
    """Any value, or none, under any key of any published config: a Model, or one of our errors."""
    config = json.loads((CONFIGS / row["file"]).read_text())
    section = data.draw(st.sampled_from([config, *(value for value in config.values() if isinstance(value, dict))]))
    key = data.draw(st.sampled_from(sorted(section)))
    if data.draw(st.booleans()):
        del section[key]
    else:
        section[key] = data.draw(json_values)
    try:
        model = hub.from_config(config, row["id"])
    except PerrunError:
        return
    assert model.total_params > 0
