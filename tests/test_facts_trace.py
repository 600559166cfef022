"""What transformers itself builds from our configs on the meta device: the same count, the same linear modules."""

import copy
import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perrun.facts import models
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


def build(config: dict[str, Any]) -> Any:
    """The model of a config on the meta device, as AutoConfig rebuilds it."""
    facts = copy.deepcopy(config)
    facts.pop("quantization_config", None)
    model_type = {"kimi_k2": "deepseek_v3"}.get(facts.pop("model_type"), config["model_type"])
    rebuilt = transformers.AutoConfig.for_model(model_type, **facts)
    auto = transformers.AutoModelForImageTextToText if "vision_config" in facts else transformers.AutoModelForCausalLM
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


@pytest.mark.parametrize("model", _one_per_shape(), ids=lambda model: model.id)
def test_transformers_builds_the_same(model: Model) -> None:
    built = build(model.config)
    buffers = int(next(row for row in models.rows() if row["id"] == model.id)["router_bias_buffers"] or 0)
    assert sum(parameter.numel() for parameter in built.parameters()) + buffers == model.total_params
    ours: Counter[tuple[str, int, int, bool]] = Counter()
    for layer in model.shape.layers:
        for m in layer.linears:
            if m.is_module:
                ours[m.name, m.in_features, m.out_features, m.bias] += layer.count * m.copies
    assert linear_modules(built) == ours


@pytest.mark.parametrize("id", ["google/gemma-3n-E2B", "google/gemma-3n-E4B"])
def test_the_language_part_of_gemma_3n(id: str) -> None:
    model = models.get(id)
    built = build({**model.config["text_config"], "model_type": "gemma3n_text"})
    assert sum(parameter.numel() for parameter in built.parameters()) == model.shape.text_params


@pytest.mark.parametrize("row", INDEX, ids=[row["id"] for row in INDEX])
def test_published_configs_still_build_to_the_recorded_count(row: dict[str, str]) -> None:
    config = json.loads((CONFIGS / row["file"]).read_text())
    if config["model_type"] in REMOTE:
        pytest.skip("repository code that transformers does not ship")
    if config["model_type"] == "llama4":  # the stored copy is trimmed; the class's own default tower is a smaller one
        config["vision_config"] = models.get(row["id"]).config["vision_config"]
    assert sum(parameter.numel() for parameter in build(config).parameters()) == int(row["meta_params"])
