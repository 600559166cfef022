"""perrun recipe, perrun diff and --config as people type them."""

import json
from pathlib import Path

import pytest

from perrun.surfaces import cli

LLAMA = "meta-llama/Llama-3.1-8B"


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert cli.run(list(words)) == code
    out, err = capsys.readouterr()
    return out if code == 0 else out + err


def written(folder: Path, *words: str) -> Path:
    assert cli.run(["recipe", *words, "--out", str(folder)]) == 0
    return folder


def test_a_recipe_prints_its_command_its_files_and_what_it_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "recipe", LLAMA, "--method", "qlora", "--gpu", "L4", "--target", "trl")
    assert "trl sft --config trl.yaml --accelerate_config accelerate.yaml --num_processes 1" in out
    assert "load_in_4bit: true" in out
    assert "Assumed:" in out


def test_a_recipe_is_written_and_never_over_other_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", LLAMA, "--method", "lora", "--gpu", "H100-SXM", "--target", "axolotl")
    assert (folder / "run.sh").stat().st_mode & 0o111
    assert "base_model: meta-llama/Llama-3.1-8B" in (folder / "axolotl.yaml").read_text()
    (folder / "axolotl.yaml").write_text("base_model: mine\n")
    again = ("recipe", LLAMA, "--method", "lora", "--gpu", "H100-SXM", "--target", "axolotl", "--out", str(folder))
    assert "says something else" in said(capsys, *again, code=2)
    said(capsys, *again, "--force")
    assert "mine" not in (folder / "axolotl.yaml").read_text()


def test_pairs_are_not_packed_unless_one_insists(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("recipe", LLAMA, "--method", "lora", "--objective", "dpo", "--gpu", "H100-SXM")
    assert "trl dpo" in said(capsys, *flags)
    assert "packing of dpo rows" in said(capsys, *flags, "--packing", code=2)


def test_a_target_that_cannot_names_those_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("recipe", LLAMA, "--objective", "orpo", "--gpu", "H100-SXM", "--target", "trl")
    assert "trl cannot express objective orpo" in said(capsys, *flags, code=2)
    answer = json.loads(said(capsys, *flags[:-1], "axolotl", "--json"))
    assert answer["target"] == "axolotl"
    assert set(answer["files"]) == {"axolotl.yaml", "run.sh"}


def test_what_does_not_fit_is_said_with_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "recipe", "meta-llama/Llama-3.1-70B", "--method", "full", "--gpu", "L4", code=1)
    assert "no strategy for full" in out
    assert "GiB" in out


def test_a_plan_becomes_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(said(capsys, "plan", LLAMA, "--method", "qlora", "--limit", "2", "--json"))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    made = json.loads(said(capsys, "recipe", "--plan", str(file), "--row", "2", "--json"))
    strategy = plan["plans"][1]["strategy"]
    assert f"per_device_train_batch_size: {strategy['micro_batch']}\n" in made["files"]["trl.yaml"]
    assert f"gradient_accumulation_steps: {strategy['grad_accum']}\n" in made["files"]["trl.yaml"]
    assert "no plan 3" in said(capsys, "recipe", "--plan", str(file), "--row", "3", code=2)
    file.write_text("{}")
    assert "is no plan" in said(capsys, "recipe", "--plan", str(file), code=2)
    assert "contradict" in said(capsys, "recipe", LLAMA, "--plan", str(file), code=2)


def test_a_configuration_is_read_and_flags_stand_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, LLAMA, "--method", "qlora", "--rank", "8", "--gpu", "L4", "--target", "axolotl")
    capsys.readouterr()
    assert cli.run(["estimate", "--config", str(folder / "axolotl.yaml"), "--gpu", "L4", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "method qlora" in err
    assert "lora_rank 8" in err
    plain = ("estimate", LLAMA, "--method", "qlora", "--rank", "8", "--gpu", "L4", "--framework", "axolotl")
    by_hand = json.loads(said(capsys, *plain, "--micro-batch", "4", "--checkpointing", "full", "--fused-ce",
                              "--attention", "flash2", "--seq-len", "2048", "--json"))  # fmt: skip
    assert json.loads(out)["memory"] == by_hand["memory"]
    full = said(capsys, "estimate", "--config", str(folder), "--gpu", "L4", "--method", "lora", "--json")
    assert json.loads(full)["memory"]["device_gib"] > by_hand["memory"]["device_gib"]


def test_a_plan_takes_the_job_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, LLAMA, "--method", "lora", "--gpu", "H100-SXM", "--n-gpus", "4")
    capsys.readouterr()
    answer = json.loads(said(capsys, "plan", "--config", str(folder), "--examples", "300", "--limit", "1", "--json"))
    assert (answer["job"]["model"], answer["job"]["method"]) == (LLAMA, "lora")
    assert (answer["job"]["examples"], answer["job"]["global_batch"]) == (300, 16)


def test_one_stack_becomes_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, LLAMA, "--method", "dora", "--gpu", "H100-SXM", "--target", "llamafactory")
    capsys.readouterr()
    flags = ("recipe", "--config", str(folder / "llamafactory.yaml"), "--gpu", "H100-SXM", "--target", "axolotl")
    out = said(capsys, *flags, "--framework", "axolotl")
    assert "peft_use_dora: true" in out


@pytest.mark.parametrize("command", [("plan",), ("estimate", "--gpu", "L4"), ("recipe", "--gpu", "L4")])
def test_an_unreadable_configuration_names_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("base_model: x\nmicro_batch_size: many\n")
    out = said(capsys, command[0], "--config", str(file), *command[1:], code=2)
    assert "a.yaml: micro_batch_size is 'many'" in out
    assert "Traceback" not in out


def test_no_model_at_all_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model is named" in said(capsys, "plan", code=2)


# --------------------------------------------------------------------------------------------------------- diff


def changed(folder: Path, old: str, new: str) -> tuple[Path, Path]:
    before = folder / "old" / "axolotl.yaml"
    after = folder / "new" / "axolotl.yaml"
    after.parent.mkdir()
    after.write_text(before.read_text().replace(old, new))
    assert after.read_text() != before.read_text()
    return before, after


def test_a_change_is_told_in_memory_hours_and_dollars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The difference is the two estimates', and dollars are hours times the typed price, by hand."""
    written(tmp_path / "old", LLAMA, "--method", "qlora", "--gpu", "L40S", "--target", "axolotl",
            "--checkpointing", "full")  # fmt: skip
    before, after = changed(tmp_path, "gradient_checkpointing: true", "gradient_checkpointing: false")
    capsys.readouterr()
    flags = ("diff", str(before), str(after), "--gpu", "L40S", "--examples", "5000", "--tokens", "1500")
    found = json.loads(said(capsys, *flags, "--price", "2", "--json"))
    estimates = [
        json.loads(said(capsys, "estimate", "--config", str(file), "--gpu", "L40S", "--examples", "5000",
                        "--tokens", "1500", "--json"))
        for file in (before, after)
    ]  # fmt: skip
    assert found["memory_gib"] == estimates[1]["memory"]["device_gib"] - estimates[0]["memory"]["device_gib"]
    hours = [5000 * 1500 / one["tokens_per_s"] / 3600 for one in estimates]
    assert found["hours"] == pytest.approx(hours[1] - hours[0])
    assert found["usd"] == pytest.approx(2 * (hours[1] - hours[0]))
    assert [one["name"] for one in found["settings"]] == ["checkpointing"]
    assert found["memory_gib"] > 0
    assert found["usd"] < 0
    assert "less a run" in found["verdict"]
    assert "more a GPU" in found["verdict"]


def test_a_change_for_a_pull_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "old", LLAMA, "--method", "qlora", "--gpu", "L40S", "--target", "axolotl")
    before, after = changed(tmp_path, "lora_r: 16", "lora_r: 64\ncolour: red")
    capsys.readouterr()
    out = said(capsys, "diff", str(before), str(after), "--gpu", "L40S", "--markdown")
    assert "| lora_rank | 16 | 64 |  |" in out
    assert "The loss curve changes too: lora_rank." in out
    assert "Not read: colour." in out


def test_nothing_changed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, LLAMA, "--method", "qlora", "--gpu", "L40S")
    capsys.readouterr()
    out = said(capsys, "diff", str(folder), str(folder), "--gpu", "L40S", "--csv")
    assert "hours" in out
    found = json.loads(said(capsys, "diff", str(folder), str(folder), "--gpu", "L40S", "--json"))
    assert (found["usd"], found["settings"]) == (0.0, [])
    assert found["verdict"] == "Nothing that costs memory, time or money changed."


def test_a_change_that_no_longer_fits_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "old", LLAMA, "--method", "qlora", "--gpu", "L4", "--target", "axolotl")
    before, after = changed(tmp_path, "adapter: qlora\nload_in_4bit: true", "load_in_4bit: false")
    capsys.readouterr()
    assert "It no longer fits" in said(capsys, "diff", str(before), str(after), "--gpu", "L4", "--markdown")
