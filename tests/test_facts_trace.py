"""What transformers itself builds from our configs on the meta device: the same count, the same linear modules."""

import copy
import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perrun.facts import hub, models
from perrun.shapes import Shape
from perrun.terms import Model

pytestmark = pytest.mark.trace
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

CONFIGS = Path(__file__).with_name("data") / "configs"
INDEX = list(csv.DictReader((CONFIGS / "index.csv").read_text().splitlines()))

# repository code that transformers does not ship
REMOTE = ("qwen", "chatglm", "baichuan", "minicpm", "mimo", "internlm2")
# gemma3n needs timm for its vision tower; llm-foundry's own MPT has biases and positions that the class here lacks
OTHERWISE = ("gemma3n", "(llm-foundry config)")
OUTSIDE_LAYERS = ("lm_head", "embed_out", "project_in", "project_out", "per_layer_model_projection")
TOWERS = re.compile(r"vision|visual|audio|multi_modal|embed_vision|embed_audio")


def _one_per_shape() -> list[Model]:
    seen: dict[tuple[Shape, str], Model] = {}
    for row in models.rows():
        model = models.get(row["id"])
        skipped = model.model_type in REMOTE or any(word in f"{model.model_type} {model.id}" for word in OTHERWISE)
        if not skipped:
            seen.setdefault((model.shape, model.model_type), model)
    return list(seen.values())


def build(config: dict[str, Any], has_tower: bool = False) -> Any:
    """The model of a config on the meta device, as AutoConfig rebuilds it."""
    facts = copy.deepcopy(config)
    facts.pop("quantization_config", None)
    model_type = {"kimi_k2": "deepseek_v3"}.get(facts.pop("model_type"), config["model_type"])
    rebuilt = transformers.AutoConfig.for_model(model_type, **facts)
    has_tower = has_tower or "vision_config" in facts
    auto = transformers.AutoModelForImageTextToText if has_tower else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        if model_type == "mistral4":  # its language part is in no Auto class
            return transformers.Mistral4ForCausalLM(rebuilt)
        return auto.from_config(rebuilt)


def linear_modules(module: Any) -> Counter[tuple[str, int, int, bool]]:
    """Name, widths and bias of every linear module of the decoder layers."""
    found: Counter[tuple[str, int, int, bool]] = Counter()
    for path, child in module.named_modules():
        name = path.rsplit(".", 1)[-1]
        is_conv1d = type(child).__name__ == "Conv1D"  # GPT-2's linear layer, stored transposed
        if not (isinstance(child, torch.nn.Linear) or is_conv1d) or TOWERS.search(path) or name in OUTSIDE_LAYERS:
            continue
        n_in, n_out = child.weight.shape if is_conv1d else reversed(child.weight.shape)
        found[name, n_in, n_out, child.bias is not None] += 1
    return found


def assert_same(model: Model, built: Any, buffers: int = 0) -> None:
    """The same count of parameters, and the same linear modules in the decoder layers."""
    assert sum(parameter.numel() for parameter in built.parameters()) + buffers == model.total_params
    ours: Counter[tuple[str, int, int, bool]] = Counter()
    for layer in model.shape.layers:
        for m in layer.linears:
            if m.is_module:
                ours[m.name, m.in_features, m.out_features, m.bias] += layer.count * m.copies
    assert linear_modules(built) == ours


@pytest.mark.parametrize("model", _one_per_shape(), ids=lambda model: model.id)
def test_transformers_builds_the_same(model: Model) -> None:
    row = next(row for row in models.rows() if row["id"] == model.id)
    assert_same(model, build(model.config), int(row["router_bias_buffers"] or 0))


@pytest.mark.parametrize("id", ["google/gemma-3n-E2B", "google/gemma-3n-E4B"])
def test_the_language_part_of_gemma_3n(id: str) -> None:
    model = models.get(id)
    built = build({**model.config["text_config"], "model_type": "gemma3n_text"})
    assert sum(parameter.numel() for parameter in built.parameters()) == model.shape.text_params


def _config(row: dict[str, str]) -> dict[str, Any]:
    return json.loads((CONFIGS / row["file"]).read_text())


BUILT_BY_TRANSFORMERS = [row for row in INDEX if _config(row)["model_type"] not in REMOTE]


@pytest.mark.parametrize("row", BUILT_BY_TRANSFORMERS, ids=[row["id"] for row in BUILT_BY_TRANSFORMERS])
def test_published_configs_still_build_to_the_recorded_count(row: dict[str, str]) -> None:
    config = _config(row)
    if config["model_type"] == "llama4":  # the stored copy is trimmed; the class's own default tower is a smaller one
        config["vision_config"] = models.get(row["id"]).config["vision_config"]
    assert sum(parameter.numel() for parameter in build(config).parameters()) == int(row["meta_params"])


# families that no row has, or a switch that no row sets; everything else as the class's own defaults
SMALL = {"num_hidden_layers": 6}
DEFAULTS: list[tuple[str, dict[str, Any]]] = [
    ("bamba", {"attn_layer_indices": [9, 18, 27]}),
    ("codegen", {}),
    ("cohere", {"use_qk_norm": True}),
    ("cohere2", {}),
    (
        "dots1",
        {**SMALL, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1},
    ),
    ("ernie4_5", {}),
    ("ernie4_5_moe", {}),
    ("exaone4", {}),
    ("falcon", {"bias": True, "parallel_attn": False, "multi_query": False}),
    ("falcon_mamba", {}),
    ("flex_olmo", {}),
    ("gemma3", {}),
    ("glm_moe_dsa", SMALL),
    ("gpt_neo", {}),
    ("granitemoehybrid", {}),
    ("granitemoeshared", {"shared_intermediate_size": 512}),
    ("helium", {}),
    ("jamba", {}),
    ("kimi_linear", {}),
    ("mamba", {}),
    ("mamba2", {}),
    ("minicpm3", {}),
    ("minimax_m2", {}),
    ("ministral3", {}),
    ("mistral3", {}),
    ("nemotron_h", {}),
    ("olmo", {}),
    ("phi", {"qk_layernorm": True}),
    ("qwen2_vl", {}),
    ("seed_oss", {}),
    ("stablelm", {"qk_layernorm": True}),
]


@pytest.mark.parametrize(("model_type", "switches"), DEFAULTS, ids=[model_type for model_type, _ in DEFAULTS])
def test_a_class_with_its_own_defaults_is_read_as_it_is_built(model_type: str, switches: dict[str, Any]) -> None:
    config = {**transformers.AutoConfig.for_model(model_type, **switches).to_dict(), "model_type": model_type}
    assert_same(
        hub.from_config(config, model_type), build({**switches, "model_type": model_type}, "vision_config" in config)
    )
