"""Every kind of bad input through the real command line: one line of what, allowed and hint; exit code 2; no trace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perrun.surfaces import cli

LLAMA = "meta-llama/Llama-3.1-8B"
QWEN = json.loads((Path(__file__).parent / "data" / "configs" / "Qwen__Qwen3-8B.json").read_text())
HEADER = "provider,gpu,n_gpus,usd_per_hour,observed_at"


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """An empty folder to stand in, an empty price book, no hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path / "book"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def refused(capsys, *arguments: str) -> str:
    """The complaint of a call that must fail as a user's mistake."""
    before = sorted(Path.cwd().rglob("*"))
    assert cli.run(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert ". Hint: " in err
    assert "Traceback" not in err
    assert sorted(Path.cwd().rglob("*")) == before, "something was written"
    return err


NUMBERS = [
    ("--examples -5", "examples is -5; expected a number above 0"),
    ("--examples 0", "examples is 0; expected a number above 0"),
    ("--examples 1000000000000000", "expected a number at most 1,000,000,000,000"),
    ("--tokens 0", "tokens_per_example is 0"),
    ("--tokens 1.5", "'--tokens'"),
    ("--tokens many", "'--tokens'"),
    ("--longest 100 --tokens 1000", "longest_example 100 is below the mean; expected at least 1000"),
    ("--epochs 0", "epochs is 0"),
    ("--epochs -1", "epochs is -1"),
    ("--epochs nan", "epochs is nan; expected a finite number"),
    ("--epochs inf", "epochs is inf; expected a finite number"),
    ("--seq-len 0", "seq_len is 0"),
    ("--seq-len 1000000000", "seq_len is 1000000000; expected a number at most 16,777,216"),
    ("--seq-len 200000", "expected at most 131072 tokens"),  # max_position_embeddings of Llama 3.1
    ("--rank 0", "lora_rank is 0"),
    ("--rank 1000000", "lora_rank is 1000000; expected a number at most 65,536"),
    ("--global-batch 0", "global_batch is 0"),
    ("--micro-batch 0", "micro_batch is 0"),
    ("--micro-batch -2", "micro_batch is -2"),
    ("--micro-batch 3", "micro_batch 3 does not divide the 16 sequences"),
    ("--tp 0", "tp is 0"),
    ("--max-gpus 0", "'--max-gpus'"),
    ("--min-fit 2", "'--min-fit'"),
    ("--limit -3", "'--limit'"),
    ("--budget 0", "budget is 0; expected a number above 0"),
    ("--budget -4", "budget is -4"),
    ("--budget nan", "budget is nan"),
    ("--deadline 0", "deadline is 0"),
    ("--examples", "requires an argument"),
    ("--as-of 2026-13-01", "as-of is '2026-13-01'; expected a day, YYYY-MM-DD"),
    ("--as-of 2020-01-01", "no price was known on 2020-01-01"),
]


@pytest.mark.parametrize(("flags", "said"), NUMBERS)
def test_numbers_that_cannot_be(capsys, flags, said):
    assert said in refused(capsys, "plan", LLAMA, *flags.split())


NAMES = [
    ("--method hqlora", "Hint: did you mean qlora?"),
    ("--method freeze", "no law for method freeze"),
    ("--method prefix", "expected full, lora, qlora, lora-int8, dora, qdora, freeze"),
    ("--objective grp", "Hint: did you mean grpo?"),
    ("--precision bf17", "expected bf16-true, bf16-mixed, fp16-mixed, fp32, fp8, mxfp8, nvfp4"),
    ("--optimizer adam", "Hint: did you mean adamw?"),
    ("--framework torchtun", "did you mean torchtune"),
    ("--checkpointing some", "expected none, selective, full, unsloth"),
    ("--attention flash9", "did you mean flash"),
    ("--sharding zero9", "did you mean zero"),
    ("--offload disk", "expected none, params, optimizer, both"),
    ("--targets wq", "expected all-linear, attn, attn-qv or some of down_proj, gate_proj"),
    ("--gpu h1000", "Hint: did you mean H100"),
    ("--gpu abacus", "expected a card of `perrun gpus`"),
    ("--gpu rtx-2080-ti", "no offer with gpu"),
    ("--provider awss", "no offer with provider awss; expected akash, aws, "),
    ("--region atlantis", "no offer with region atlantis"),
    ("--term weekly", "expected interruptible, market-floor, on-demand, prepaid-block"),
    ("--provider aws --term prepaid-block", "no offer satisfies all filters at once"),
    ("--sort price", "sort is 'price'; expected usd, hours"),
    ("--rules 6n", "expected flops-6n-0.3, bytes-per-parameter, measured-speedup"),
    ("--nosuch", "No such option: --nosuch"),
    ("second", "unexpected extra argument"),
]


@pytest.mark.parametrize(("flags", "said"), NAMES)
def test_names_that_nobody_knows(capsys, flags, said):
    assert said in refused(capsys, "plan", LLAMA, *flags.split())


CARDS = [
    ("plan --gpu t4", "T4-16GB has no bf16 (Turing); expected a card from Ampere on, or --precision fp16-mixed"),
    ("plan --gpu a100-sxm4-80gb --precision fp8", "A100-SXM4-80GB has no FP8 (Ampere); expected a card from Ada"),
    ("estimate --gpu t4", "T4-16GB has no bf16"),
    ("estimate --gpu a100-sxm4-80gb --precision fp8", "A100-SXM4-80GB has no FP8"),
    ("estimate --gpu h100-sxm --precision nvfp4", "H100-SXM-80GB has no FP4 (Hopper); expected a Blackwell card"),
    ("estimate --gpu l4 --attention flash3", "L4-24GB cannot run FlashAttention-3 (Ada); expected a Hopper card"),
    ("plan --gpu l4 --attention flash3", "L4-24GB cannot run FlashAttention-3"),
    ("estimate --gpu h100", "GPU 'h100' fits 3 cards; expected one of H100-SXM-80GB: 80 GB, SXM5, 3350 GB/s"),
    ("estimate --gpu l4 --n-gpus 0", "n_gpus is 0"),
    ("estimate --gpu l4 --n-gpus 100000000", "n_gpus is 100000000"),
    ("estimate --gpu l4 --n-gpus 3 --n-nodes 2", "n_gpus (3) must be a multiple of n_nodes (2)"),
    ("estimate --gpu l4 --n-gpus 3", "global_batch 16 cannot be shared evenly by 3"),
    ("estimate --gpu l4 --n-gpus 2 --interconnect nvlink", "L4-24GB has no NVLink; expected pcie"),
    ("estimate --gpu l4 --interconnect wire", "expected none, nvlink, pcie, ib, ethernet"),
    ("estimate --gpu l4 --usable-gib -3", "usable_gib is -3.0; expected a number above 0"),
    ("estimate --gpu l4 --usable-gib nan", "usable_gib is nan; expected a finite number"),
    ("estimate --gpu l4 --power-limit 0", "power_limit_w is 0.0; expected a number above 0"),
    ("estimate --gpu l4 --max layers", "cannot look for the largest 'layers'; expected seq_len, micro_batch, rank"),
    ("estimate", "Missing option '--gpu'"),
]


@pytest.mark.parametrize(("call", "said"), CARDS)
def test_what_a_card_cannot_run(capsys, call, said):
    command, *flags = call.split()
    assert said in refused(capsys, command, LLAMA, *flags)


CONFIGS = {
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768},
    "classifier": {**QWEN, "architectures": ["Qwen3ForSequenceClassification"]},
    "missing": {key: value for key, value in QWEN.items() if key != "num_hidden_layers"},
    "negative": {**QWEN, "hidden_size": -4096},
    "absurd": {**QWEN, "num_hidden_layers": 10**7},
    "text": {**QWEN, "vocab_size": "many"},
    "list": [QWEN],
}
SAID = {
    "t5": "T5ForConditionalGeneration is an encoder-decoder; expected a causal language model",
    "bert": "model_type 'bert' (BertForMaskedLM) is not known; expected a causal language model",
    "classifier": "Qwen3ForSequenceClassification is no causal language model",
    "missing": "num_hidden_layers is missing",
    "negative": "hidden_size is -4096; expected a whole number from 1 to",
    "absurd": "num_hidden_layers is 10000000",
    "text": "vocab_size is 'many'",
    "list": "is a JSON list; expected an object",
}


@pytest.mark.parametrize("command", ["plan", "models"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_is_no_causal_language_model(capsys, tmp_path, name, command):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))
    assert SAID[name] in refused(capsys, command, str(file))


@pytest.mark.parametrize("content", ["{not json", "", "\x00\x01"])
def test_a_config_that_is_no_json(capsys, tmp_path, content):
    file = tmp_path / "config.json"
    file.write_text(content)
    assert "config.json is not JSON" in refused(capsys, "plan", str(tmp_path))


def test_models_that_are_not_there(capsys):
    assert "does not exist" in refused(capsys, "plan", "/nonexistent/config.json")
    assert "did you mean meta-llama/Llama-3" in refused(capsys, "plan", "llama-9")
    assert "config.json" in refused(capsys, "plan", "nobody/Nothing-7B")
    assert "no model is named" in refused(capsys, "plan")


PRICES = {
    "": "no column 'provider'",
    f"{HEADER}\n": "holds no price",
    f"{HEADER}\nx,h100-sxm,1,2,\n": "line 2, observed_at: is empty; expected the day on which the price was seen",
    f"{HEADER}\nx,h100-sxm,1,2,yesterday\n": "line 2, observed_at: 'yesterday' is no date",
    f"{HEADER}\nx,h100-sxm,1,-2,2026-01-01\n": "line 2, usd_per_hour: -2 is out of range; expected a number above 0",
    f"{HEADER}\nx,h100-sxm,1,0,2026-01-01\n": "line 2, usd_per_hour: 0 is out of range",
    f"{HEADER}\nx,h100-sxm,1,nan,2026-01-01\n": "line 2, usd_per_hour: nan",
    f"{HEADER}\nx,h100-sxm,1,two,2026-01-01\n": "line 2, usd_per_hour: 'two' is not a number",
    f"{HEADER}\nx,h100-sxm,1,,2026-01-01\n": "line 2, usd_per_hour: is empty",
    f"{HEADER}\nx,h100-sxm,0,2,2026-01-01\n": "line 2, n_gpus: 0 ",
    f"{HEADER}\nx,h1000,1,2,2026-01-01\n": "line 2, gpu: GPU 'h1000' is not known",
    f"{HEADER},term\nx,h100-sxm,1,2,2026-01-01,weekly\n": "line 2, term: 'weekly' is not known; expected on-demand",
    f"{HEADER},colour\nx,h100-sxm,1,2,2026-01-01,red\n": "unknown column 'colour'; expected columns provider",
    "provider,gpu,usd_per_hour,observed_at\nx,h100-sxm,2,2026-01-01\n": "no column 'n_gpus'",
}


@pytest.mark.parametrize("content", PRICES, ids=range(len(PRICES)))
def test_price_files_with_a_mistake(capsys, tmp_path, content):
    file = tmp_path / "prices.csv"
    file.write_text(content)
    assert PRICES[content] in refused(capsys, "plan", LLAMA, "--prices", str(file))


def test_prices_that_are_not_there_or_all_filtered_out(capsys, tmp_path):
    assert "no price file" in refused(capsys, "plan", LLAMA, "--prices", str(tmp_path / "none.csv"))
    file = tmp_path / "prices.csv"
    file.write_text(f"{HEADER}\nx,h100-sxm,1,2,2026-01-01\n")
    assert "no offer with gpu L4-24GB; expected H100-SXM-80GB" in refused(
        capsys, "plan", LLAMA, "--prices", str(file), "--gpu", "l4"
    )
    assert "no price was known on 2025-12-31" in refused(
        capsys, "plan", LLAMA, "--prices", str(file), "--as-of", "2025-12-31"
    )


OTHERS = [
    ("plann", "no command 'plann'; expected plan, ask"),
    ("gpus abacus", "GPU 'abacus' is not known"),
    ("models no-such-model", "no known model has 'no-such-model' in its id"),
    ("schema planet", "no schema for 'planet'; expected plan, estimate, fit"),
    ("rules 6n", "no rule set '6n'"),
    ("rules bytes-per-parameter", "prints several tables; expected --table rules, rigs, fit, runs, methods"),
    ("rules bytes-per-parameter --table cards", "has no table 'cards'"),
    (f"fit {LLAMA} --rig 0xl4", "rig '0xl4' has no GPU"),
    (f"fit {LLAMA} --micro-batch 0", "micro_batch is 0"),
    (f"compare h100-sxm a100-sxm4-80gb {LLAMA} --price-a -1", "is -1; expected dollars per GPU-hour, above 0"),
    (f"compare h100-sxm abacus {LLAMA}", "GPU 'abacus' is not known"),
]


@pytest.mark.parametrize(("call", "said"), OTHERS)
def test_mistakes_in_other_commands(capsys, call, said):
    assert said in refused(capsys, *call.split())


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (f"plan {LLAMA} --examples 0", "invalid_input"),
        (f"plan {LLAMA} --nosuch", "invalid_input"),
        (f"plan {LLAMA} --gpu h1000", "unknown_name"),
        (f"estimate {LLAMA} --gpu h100", "ambiguous_name"),
        (f"estimate {LLAMA} --gpu t4", "unsupported_by_gpu"),
        (f"estimate {LLAMA} --gpu mi300x", "missing_fact"),
        ("plann", "unknown_name"),
    ],
)
def test_json_gives_the_error_as_an_object(capsys, call, kind):
    assert cli.run([*call.split(), "--json"]) == 2
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert set(answer) == {"error", "what", "expected", "hint"}
    assert answer["error"] == kind
    assert answer["what"]
    assert answer["hint"]
    assert err.count("\n") == 1


def test_a_valid_answer_that_says_no_is_exit_code_1(capsys):
    assert cli.run(["plan", LLAMA, "--budget", "0.001"]) == 1
    out, err = capsys.readouterr()
    assert "Other jobs that you may accept" in out
    assert "no plan under $0.001; cheapest $0.0" in err
    assert cli.run(["plan", "meta-llama/Llama-3.1-70B", "--method", "full", "--gpu", "l4"]) == 1
    assert "no rig on offer holds full of meta-llama/Llama-3.1-70B: the nearest, " in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--examples", "-5"], ["--method", "hqlora", "--json"]])
def test_the_installed_command_itself(flags):
    perrun = Path(sys.executable).with_name("perrun")
    done = subprocess.run([perrun, "plan", LLAMA, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert bool(done.stdout) == ("--json" in flags)
    if done.stdout:
        assert json.loads(done.stdout)["hint"] == "did you mean qlora?"
