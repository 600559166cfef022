"""The table of models: every published count, names as people type them, speed, and what is refused."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from perrun.errors import AmbiguousName, InvalidInput, UnknownName
from perrun.facts import models
from perrun.terms import Model

ROWS = models.rows()
COUNTED = [row for row in ROWS if row["total_params"]]


def test_the_table_is_the_evidence_and_more() -> None:
    assert len(ROWS) >= 270
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len(COUNTED) >= 240


@pytest.mark.parametrize("row", COUNTED, ids=[row["id"] for row in COUNTED])
def test_counts_equal_the_published_ones(row: dict[str, str]) -> None:
    shape = models.get(row["id"]).shape
    assert shape.total_params == int(row["total_params"])
    for column in ("text_params", "active_params", "embedding_params"):
        if row[column]:
            assert getattr(shape, column) == int(row[column]), column


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_row_is_a_valid_model_with_its_licence_and_source(row: dict[str, str]) -> None:
    model = models.get(row["id"])
    assert Model.model_validate(model.model_dump()).id == row["id"]
    assert model.gated == (row["gated"] == "yes")
    assert model.source == row["source"]
    assert model.native_dtype in ("bfloat16", "float16", "float32")
    assert model.shape.n_layers == int(row["num_layers"])
    assert model.shape.hidden_size == int(row["hidden_size"])
    if row["max_position_embeddings"]:
        assert model.max_position_embeddings == int(row["max_position_embeddings"])


@pytest.mark.parametrize("row", [r for r in ROWS if r["norms_per_layer"]], ids=lambda row: row["id"])
def test_norms_windows_and_experts_are_those_of_the_row(row: dict[str, str]) -> None:
    layers = models.get(row["id"]).shape.layers
    assert {layer.norms for layer in layers} == {int(row["norms_per_layer"])}
    if row["moe_experts"]:
        experts = [m for layer in layers for m in layer.linears if m.role == "expert"]
        assert {m.copies for m in experts} == {int(row["moe_experts"])}
        assert {m.active for m in experts} == {int(row["moe_top_k"])}
    words = row["sliding_window"].split()
    if " of " in row["sliding_window"] and "every" not in words and words[0].isdigit():  # '1024 on 25 of 30 layers'
        local = sum(layer.count for layer in layers if layer.window == int(words[0]))
        assert local == int(words[2])


# printed by llm-foundry's benchmark for 2048 tokens [billions]
FOUNDRY = {"125m": 0.1253, "350m": 0.356, "760m": 0.7605, "1b": 1.316, "3b": 2.6518, "13b": 12.854, "70b": 64.8624}


@pytest.mark.parametrize(("size", "billions"), FOUNDRY.items())
def test_llm_foundry_sizes_equal_the_counts_their_runs_print(size: str, billions: float) -> None:
    model = models.get(f"mpt-{size} (llm-foundry config)")
    assert model.total_params / 1e9 == pytest.approx(billions, rel=5e-4)


@pytest.mark.parametrize(
    ("id", "billions"),
    [  # as the model card or paper of each rounds it
        ("Qwen/Qwen-7B-Chat", 7.72),
        ("THUDM/chatglm3-6b", 6.24),
        ("baichuan-inc/Baichuan2-13B-Chat", 13.9),
        ("openbmb/MiniCPM-2B-sft-bf16", 2.72),
        ("nvidia/Nemotron-4-340B-Base", 341.0),
        ("ibm/PowerLM-3b", 3.51),
        ("LiquidAI/LFM2-350M", 0.354),
        ("GPT3-175B", 175.0),
    ],
)
def test_rows_without_an_exact_count_are_as_large_as_published(id: str, billions: float) -> None:
    assert models.get(id).total_params / 1e9 == pytest.approx(billions, rel=3e-3)


@pytest.mark.parametrize(
    ("id", "scheme"),
    [
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "gptq"),
        ("Qwen/Qwen1.5-7B-Chat-AWQ", "awq"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("deepseek-ai/DeepSeek-V3", "fp8"),
        ("meta-llama/Llama-3.1-8B", None),
    ],
)
def test_weights_that_are_stored_quantised_say_so(id: str, scheme: str | None) -> None:
    assert models.get(id).stored_quantization == scheme


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "llama-3.1-8b", "META-LLAMA/llama-3.1-8b", "meta-llama/Llama-3.1-8B"])
def test_a_name_in_any_case_or_its_end_finds_the_model(name: str) -> None:
    assert models.get(name).id == "meta-llama/Llama-3.1-8B"


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        models.get("Llama-3.1-9B")
    assert "meta-llama/Llama-3.1-8B" in caught.value.hint


def test_an_end_that_two_ids_share_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = {**ROWS[0], "id": "somebody/" + ROWS[0]["id"].rsplit("/", maxsplit=1)[-1]}
    monkeypatch.setattr(models, "_by_id", lambda: {row["id"]: row for row in (*ROWS, twin)})
    with pytest.raises(AmbiguousName) as caught:
        models.get("llama-2-7b-hf")
    assert set(caught.value.candidates) == {"meta-llama/Llama-2-7b-hf", "somebody/Llama-2-7b-hf"}


def test_known_raises_for_what_is_not_in_the_table() -> None:
    with pytest.raises(UnknownName):
        models.known("nobody/nothing")


def test_one_model_of_a_fresh_process_takes_under_10_ms_and_builds_no_other() -> None:
    code = (
        "import time; from perrun.facts import models, tables; from perrun.facts.families import llama\n"
        "t = time.perf_counter(); models.get('meta-llama/Llama-3.1-8B'); t = time.perf_counter() - t\n"
        "print(t, models.known.cache_info().currsize)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    times, built = zip(*(run.stdout.split() for run in runs), strict=True)
    assert min(map(float, times)) < 0.010
    assert set(built) == {"1"}


def test_a_second_look_is_free() -> None:
    models.get("Qwen/Qwen3-8B")
    start = time.perf_counter()
    models.get("Qwen/Qwen3-8B")
    assert time.perf_counter() - start < 0.005


def test_a_file_and_its_folder_are_read(tmp_path: Path) -> None:
    text = Path(__file__).with_name("data").joinpath("configs/Qwen__Qwen3-8B.json").read_text()
    (tmp_path / "config.json").write_text(text)
    for path in (tmp_path, tmp_path / "config.json"):
        assert models.get(str(path)).total_params == 8_190_735_360


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/config.json", "config.json", "~/no/such/folder"])
def test_a_path_that_does_not_exist_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="does not exist"):
        models.get(name)


def test_a_folder_without_a_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no config\.json"):
        models.get(str(tmp_path))


def test_a_binary_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InvalidInput, match="not a text file"):
        models.get(str(file))


def test_inside_only_a_name_reaches_neither_disk_nor_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path(__file__).parent / "data" / "configs" / "Qwen__Qwen3-0.6B.json"
    folder = tmp_path / "owner" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config.read_text())
    monkeypatch.chdir(tmp_path)
    assert models.get("owner/model").model_type == "qwen3"  # a folder that is spelled like a hub id
    mine = models.get(str(config))
    with models.only({"mine": mine}):
        assert models.get("mine") is mine
        assert models.get("Llama-3.1-8B").id == "meta-llama/Llama-3.1-8B"
        for name in ("owner/model", str(config), "../owner/model", "nobody/at-all"):
            with pytest.raises(UnknownName, match="is not known"):
                models.get(name)
    assert models.get("owner/model").model_type == "qwen3"
