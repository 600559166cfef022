"""Measured rows become questions: spellings, notes, units, and what is refused."""

from pathlib import Path

import pytest

from perrun import runs
from perrun.errors import InvalidInput
from perrun.runs import notes, spellings, table
from perrun.terms import Run

SHIPPED = Path(__file__).parents[1] / "runs"

LLAMA = {
    "source": "somebody",
    "model": "meta-llama/Llama-2-7b-hf",
    "method": "lora",
    "objective": "sft",
    "precision": "bf16-true",
    "optimizer": "adamw",
    "lora_rank": "16",
    "lora_targets": "attn",
    "seq_len": "4096",
    "packing": "yes",
    "micro_batch": "2",
    "grad_accum": "4",
    "checkpointing": "full",
    "attention": "flash2",
    "fused_ce": "no",
    "compile": "no",
    "offload": "none",
    "framework": "trl",
    "gpu": "H100-SXM-80GB",
    "n_gpus": "8",
    "n_nodes": "1",
    "sharding": "fsdp2",
    "peak_mem_gb": "53.687091",
    "mem_unit": "GB",
    "mem_kind": "allocated",
    "outcome": "ok",
    "tokens_per_s": "1000",
}


def run(**changes: str) -> Run:
    return Run(line=7, source="somebody", columns=LLAMA | changes)


def question(**changes: str) -> runs.Settings:
    found = runs.settings(run(**changes))
    assert isinstance(found, runs.Settings), found
    return found


def refusal(**changes: str) -> str:
    found = runs.settings(run(**changes))
    assert isinstance(found, runs.Skipped)
    assert found.run.line == 7
    return found.reason


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


HEADER = "model,method,gpu,seq_len,micro_batch"


class TestRead:
    def test_lines_and_extra_columns(self, tmp_path: Path) -> None:
        path = written(tmp_path, f'\ufeff{HEADER},id,notes\nm,full,g,1,1,a7,"two\nlines"\n\nm,lora,g,1,1,a8,\n')
        first, second = runs.read(path)
        assert (first.line, second.line) == (2, 5)  # the quoted cell spans lines 2 and 3, line 4 is blank
        assert (first.columns["id"], second.columns["id"]) == ("a7", "a8")
        assert first.source == "mine"

    def test_missing_column_is_named_with_its_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "model,method,gpu,seq_len\n")
        with pytest.raises(InvalidInput, match=r"mine\.csv: column 'micro_batch' is missing"):
            runs.read(path)

    @pytest.mark.parametrize(("text", "what"), [("", "empty"), (f"{HEADER},gpu\n", "'gpu' stands twice")])
    def test_no_table(self, tmp_path: Path, text: str, what: str) -> None:
        with pytest.raises(InvalidInput, match=what):
            runs.read(written(tmp_path, text))

    def test_no_file_and_no_text(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="cannot be read"):
            runs.read(tmp_path / "none.csv")
        path = tmp_path / "latin.csv"
        path.write_bytes(HEADER.encode() + b"\n\xff\xfe,full,g,1,1\n")
        with pytest.raises(InvalidInput, match="not UTF-8"):
            runs.read(path)

    def test_short_row_is_unknown_and_long_row_is_refused(self, tmp_path: Path) -> None:
        short, long = runs.read(written(tmp_path, f"{HEADER}\nm,full\nm,full,g,1,1,surplus\n"))
        assert short.columns["micro_batch"] == ""
        assert long.columns[table.OVERFLOW] == "surplus"
        refused = runs.settings(long)
        assert isinstance(refused, runs.Skipped)
        assert "more cells than the header" in refused.reason


class TestSettings:
    def test_numbers_and_units(self) -> None:
        s = question()
        assert (s.setting.seq_len, s.setting.mean_len, s.setting.n_gpus) == (4096, 4096, 8)
        assert s.setting.data_parallel == 8
        assert s.job.global_batch == 2 * 4 * 8
        assert s.measured.peak_mem_gib == pytest.approx(50, abs=1e-6)  # 53.687091 GB = 50 x 1.073741824
        assert s.unscored == {}
        assert s.assumed == {}

    def test_gib_is_taken_as_it_is(self) -> None:
        assert question(mem_unit="GiB").measured.peak_mem_gib == 53.687091

    def test_what_is_left_out_comes_from_the_profile(self) -> None:
        s = question(framework="litgpt", lora_rank="", attention="unknown", fused_ce="", n_gpus="1", sharding="none")
        assert s.assumed == {"lora_rank": 8, "attention": "sdpa", "fused_ce": True}  # the row of stacks.csv
        assert s.setting.lora_rank == 8

    def test_unknown_gpu_stands_in_for_memory_only(self) -> None:
        s = question(gpu="")
        assert s.assumed["gpu"] == s.gpu.id
        assert "memory" not in s.unscored
        assert set(s.unscored) == {"speed", "fit"}

    def test_framework_by_what_it_drives(self) -> None:
        s = question(framework="SFTTrainer (trl) + deepspeed")
        assert (s.stack.framework, s.assumed["framework"]) == ("trl", "trl")
        assert question(framework="xtuner").assumed["framework"] == "deepspeed"
        assert "framework" not in question(framework="axolotl").assumed

    def test_grad_accum_from_the_global_batch(self) -> None:
        assert question(grad_accum="", global_batch="64").strategy.grad_accum == 64 // (2 * 8)

    def test_tensor_parallel_ranks_share_their_sequences(self) -> None:
        s = question(sharding="tp2-pp1-cp2", framework="megatron", grad_accum="", global_batch="4")
        assert s.setting.data_parallel == 2
        assert (s.strategy.grad_accum, s.assumed["sharding"]) == (1, "zero1")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"micro_batch": "-1"}, "micro_batch '-1' is not possible"),
            ({"micro_batch": "1.5"}, "micro_batch '1.5' is not possible"),
            ({"micro_batch": ""}, "micro_batch is not stated"),
            ({"seq_len": ""}, "seq_len is not stated"),
            ({"seq_len": "4k"}, "seq_len '4k' is not a number"),
            ({"seq_len": "nan"}, "seq_len 'nan' is not possible"),
            ({"n_nodes": "3"}, "must be a multiple of n_nodes"),
            ({"sharding": "tp0"}, "sharding 'tp0'"),
            ({"sharding": "tp3"}, "8 GPUs cannot hold a model split 3 ways"),
            ({"sharding": "fsdp9"}, "sharding 'fsdp9'"),
            ({"sharding": "hybrid"}, "does not say how the model is split"),
            ({"gpu": "Z9000-3TB"}, "Z9000-3TB"),
            ({"model": "nobody/nothing"}, "nobody/nothing"),
            ({"method": ""}, "method is not stated"),
            ({"method": "other", "notes": "PEFT type IA3, trainable params 1"}, "IA3"),
            ({"optimizer": "galore"}, "galore"),
            ({"framework": "no-such-stack"}, "no-such-stack"),
            ({"outcome": "perhaps"}, "outcome 'perhaps'"),
            ({"packing": "maybe"}, "packing 'maybe'"),
            ({"lora_targets": "no_such_module"}, "name no module"),
            ({"notes": "naive model parallel over 2 GPUs (device_map)"}, "device_map"),
            ({"notes": "experts are LoRA targets"}, "expert tensors"),
        ],
    )
    def test_refused_with_the_reason(self, changes: dict[str, str], reason: str) -> None:
        assert reason in refusal(**changes)


class TestSpeed:
    def test_samples_become_tokens_only_where_lengths_are_exact(self) -> None:
        assert question(tokens_per_s="", samples_per_s="2").measured.tokens_per_s == 2 * 4096
        loose = question(tokens_per_s="", samples_per_s="2", packing="no")
        assert loose.measured.tokens_per_s is None

    def test_truncated_samples_are_not_counted(self) -> None:
        s = question(tokens_per_s="", samples_per_s="2", notes="[exact-seq] samples truncated at max_length")
        assert s.measured.tokens_per_s is None

    def test_step_time_of_optimizer_step_and_of_micro_step(self) -> None:
        step = question(tokens_per_s="", step_time_s="4").measured.tokens_per_s
        assert step == 2 * 8 * 4 * 4096 / 4
        micro = question(tokens_per_s="", step_time_s="4", notes="step_time_s per MICRO step [derived]").measured
        assert micro.tokens_per_s == 2 * 8 * 4096 / 4


class TestNotes:
    def test_capped_lengths_are_not_scored(self) -> None:
        s = question(packing="no", notes="[cap-seq] dataset Alpaca, lengths vary")
        assert set(s.unscored) == {"memory", "speed", "fit"}

    def test_memory_of_the_longest_sample_is_scored(self) -> None:
        note = "[cap-seq] Alpaca; peak set by the longest sample (4096 tokens), so memory belongs to seq 4096"
        assert set(question(packing="no", notes=note).unscored) == {"speed"}

    def test_stated_mean_length_is_used(self) -> None:
        s = question(packing="no", seq_len="", notes="variable length: average 446 tokens per sample as counted")
        assert (s.setting.mean_len, s.setting.real_len) == (446, 446)
        assert set(s.unscored) == {"memory", "fit"}
        note = "[cap-seq] 4,198,051 real tokens, about 210 per sample, padded to the longest of the batch"
        assert question(packing="no", seq_len="768", notes=note).setting.real_len == 210

    def test_suspect_scores_nothing(self) -> None:
        assert set(question(notes="[suspect] contradicted").unscored) == {"memory", "speed", "fit"}
        assert set(question(notes="[suspect] 7,900 'samples' at 7.69/s").unscored) == {"speed"}
        assert set(question(notes="[suspect] 9.13 GB before step 1; 1.15 it/s").unscored) == {"memory", "fit"}

    def test_power_limits(self) -> None:
        assert question(notes="cards power-limited to 280 W, no NVLink").rig.power_limit_w == 280
        assert question(gpu="H100-SXM-96GB (500W)").rig.power_limit_w == 500
        assert question().rig.power_limit_w is None
        assert set(question(notes="rowwise; POWER LIMITED B200").unscored) == {"speed"}

    def test_gptq_base_with_lora_is_qlora_on_gptq(self) -> None:
        s = question(method="other", notes="config x; GPTQ 4-bit base + LoRA; nvidia-smi 17307 MiB")
        assert (s.setting.method, s.variant.base_quantization) == ("qlora", "gptq")
        assert s.measured.nvidia_smi_gib == pytest.approx(17307 / 1024)

    def test_nf4_named_as_what_the_base_is_not(self) -> None:
        note = "base is the GPTQ Int4 chat checkpoint (Qwen/Qwen-7B-Chat-Int4), not NF4"
        assert question(method="qlora", notes=note).variant.base_quantization == "gptq"

    def test_kernels_and_preparation(self) -> None:
        foak = question(notes="config foak-fast-kernels; fused Triton CE/RMSNorm/RoPE kernels").variant
        assert (foak.kernels, foak.loss, foak.autocast) == ("fused", "fast", False)
        liger = question(
            notes="config foak-fast-kernels-liger; bf16=True autocast flag on bf16 weights; "
            "fused Triton CE/RMSNorm/RoPE kernels, fused LoRA"
        ).variant
        assert (liger.loss, liger.autocast, liger.fused_lora) == ("fused", True, True)
        assert question(notes="prepare_model_for_kbit_training (fp32 norms)").variant.kbit_prepared is True
        assert question().variant == notes.Variant()

    def test_network_of_the_right_node(self) -> None:
        note = "2x200GbE per A100 node / 2x400GbE per H100 node"
        assert question(notes=note).variant.node_gbit_s == 800
        assert question(notes=note, gpu="A100-SXM4-80GB").variant.node_gbit_s == 400


@pytest.mark.parametrize(
    ("cell", "note", "expected"),
    [
        ("none", "", ("none", 1, 1, 1, 1)),
        ("DeepSpeed ZeRO-3", "", ("zero3", 1, 1, 1, 1)),
        ("zero2", "", ("zero2", 1, 1, 1, 1)),
        ("tp4-pp1-cp2", "", (None, 4, 1, 2, 1)),
        ("tp4-cp2", "", (None, 4, 1, 2, 1)),
        ("fsdp2-tp8-pp8-cp2", "", ("fsdp2", 8, 8, 2, 1)),
        ("fsdp-tp2-pp1-cp1", "", ("fsdp", 2, 1, 1, 1)),
        ("tp1-pp2-cp1", "VP 8; EP 32; MoE", (None, 1, 2, 1, 32)),
        ("fsdp", "MoE, ScatterMoE kernels ep4", ("fsdp", 1, 1, 1, 4)),
        ("hybrid", "model-parallel degree 4 (= GPUs x GA / GBS)", (None, 4, 1, 1, 1)),
        ("hybrid", "model-parallel degree 8 (= GPUs x GA / GBS)", (None, 4, 1, 2, 1)),
        ("hybrid", "model-parallel degree 2 (= GPUs x GA / GBS)", (None, 1, 1, 2, 1)),
        ("", "", (None, 1, 1, 1, 1)),
    ],
)
def test_layouts(cell: str, note: str, expected: tuple[object, ...]) -> None:
    found = spellings.layout(cell, note)
    assert (found.sharding, found.tp, found.pp, found.cp, found.ep) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("q_proj v_proj", "attn-qv"),
        ("q,v", "attn-qv"),
        ("k,q,v,up,down,gate", "k_proj,q_proj,v_proj,up_proj,down_proj,gate_proj"),
        ("q_proj+k_proj+v_proj+o_proj+c_attn", "q_proj,k_proj,v_proj,o_proj,c_attn"),
        ("all-linear (attn+mlp+output)", "all-linear"),
        ("language-model attention+mlp (regex)", "all-linear"),
        ("self_attn", "attn"),
        ("c_attn,c_proj,w1,w2", "c_attn,c_proj,w1,w2"),
        ("query_key_value", "query_key_value"),
        ("", None),
    ],
)
def test_lora_targets(cell: str, expected: str | None) -> None:
    assert spellings.lora_targets(cell) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("adamw (torch fused)", "adamw"),
        ("adamw-8bit (bitsandbytes)", "adamw-8bit"),
        ("paged_adamw_32bit", "paged-adamw-32bit"),
        ("adamw_torch", "adamw"),
        ("unknown", None),
    ],
)
def test_optimizers(cell: str, expected: str | None) -> None:
    assert spellings.choice("optimizer", cell) == expected


TABLES = sorted(path for path in SHIPPED.glob("*.csv") if path.name != "speedup_pairs.csv")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_shipped_row_is_read_or_refused_with_a_reason(path: Path) -> None:
    found = [runs.settings(row) for row in runs.read(path)]
    assert found
    for one in found:
        if isinstance(one, runs.Skipped):
            assert len(one.reason) > 10
        else:
            assert one.setting.mean_len <= one.setting.seq_len
            assert one.measured.peak_mem_gib is None or 0 < one.measured.peak_mem_gib < 300
