"""Every figure of docs/seeds.md, recomputed from what the pages print (rules/*.csv, data/golden) and from facts."""

import csv
from pathlib import Path

import pytest

from perrun import verbs
from perrun.facts import gpus, models
from perrun.rules import bytes_rule, flops, laws, speedup
from perrun.terms import Rig

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "docs" / "seeds.md").read_text().split())
CARDS = {row["gpu"]: row for row in flops.cards()}
JOBS = speedup.jobs()
RIGS = {row["rig"]: float(row["price_usd_per_hour"]) for row in bytes_rule.fit()}
LINE = 1.680 / 0.468  # pages 000 and 001: price of the H100 SXM over the A100 SXM4
H100_002 = float(CARDS["H100-80GB"]["price_usd_per_gpu_hour"])
A100_002 = float(CARDS["A100-80GB"]["price_usd_per_gpu_hour"])
PARAMS_70B = 70_553_706_496  # config.json of Llama 3.1 70B, counted


def says(*phrases: str) -> None:
    for phrase in phrases:
        assert phrase in TEXT, phrase


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# ---- pages 000 and 001 ----


def test_the_line_that_the_title_misses():
    says(f"$1.680 ÷ $0.468 = **{LINE:.2f}**")
    assert round(LINE, 1) != 2.7


def test_fp8_stays_below_the_line_in_the_priced_table():
    row = next(job for job in JOBS if "FP8" in job["job"])
    assert float(row["speedup_b_over_a"]) == 3.0 < LINE
    says(f"A100 at ${row['cost_a_usd']} and the H100 at ${row['cost_b_usd']}", f"**A100** {row['saving_percent']} %")
    assert row["cheaper"] == "a"


def test_no_row_favours_the_h100():
    assert [job["cheaper"] for job in JOBS] == ["a"] * 5
    says("five of five say A100")


def test_close_to_the_line():
    row = next(job for job in JOBS if job["job"] == "Full fine-tuning, 8B, BF16")
    dearer = float(row["cost_b_usd"]) / float(row["cost_a_usd"]) - 1
    says(f"2.2 ÷ 3.59 = {percent(2.2 / LINE)}", f"costs {percent(dearer)} more")
    says(f"(${row['cost_b_usd']} against ${row['cost_a_usd']})")


def test_bandwidth_and_peaks_stay_below_the_line():
    says(f"3.35 ÷ 2.0 = {3.35 / 2.0:.2f} (with the A100's 2.039 TB/s {3.35 / 2.039:.2f})")
    says(f"990 ÷ 312 = {990 / 312:.2f}, which is less than 3.59")
    assert gpus.get("A100-SXM4-80GB").bandwidth_gb_s == 2039


def test_ten_percent_dearer_stands_nowhere():
    fp8, *others = sorted(LINE / float(job["speedup_b_over_a"]) - 1 for job in JOBS)
    says(f"costs {percent(fp8)} more (FP8), the others {100 * others[0]:.0f} to {percent(others[-1])}")


def test_four_values_of_one_peak():
    assert gpus.get("H100-SXM-80GB").bf16_dense_tflops == 989.4
    assert CARDS["H100-80GB"]["dense_bf16_tflops"] == "989"
    says("989 on page 002, 989.5 on page 004, 989.4 in NVIDIA's data sheet")


# ---- page 002 ----


def test_the_ratio_of_peaks():
    assert f"{989 / 312:.2f}" == "3.17"
    says("989 ÷ 312")


def test_the_budget_pick_is_fifth_of_six():
    costs = {name: row["cost_22_5m_tokens_usd"] for name, row in CARDS.items() if name != "RTX-6000-Ada-48GB"}
    ranked = sorted(costs, key=lambda name: float(costs[name]))
    assert ranked.index("A100-40GB") == 4
    assert len(ranked) == 6
    says(
        f"fifth of six at ${costs['A100-40GB']}: RTX 4090 ${costs['RTX-4090-24GB']}, H100 ${costs['H100-80GB']}, "
        f"L40S ${costs['L40S-48GB']} and H200 ${costs['H200-141GB']} are cheaper"
    )
    per_token = sorted(CARDS, key=lambda name: float(CARDS[name]["usd_per_million_tokens_8b_qlora"]))
    assert per_token.index("A100-40GB") == 4
    assert len(per_token) == 7
    says("per token it is fifth of seven")


def test_the_spare_hours_are_the_other_cards():
    consumer, h100 = CARDS["RTX-4090-24GB"], CARDS["H100-80GB"]
    says(f"ends after {h100['hours_22_5m_tokens']} h, the RTX 4090 after {consumer['hours_22_5m_tokens']} h")
    cents = 100 * (float(h100["cost_22_5m_tokens_usd"]) - float(consumer["cost_22_5m_tokens_usd"]))
    says(f"for {cents:.0f} cents less")


def test_the_cost_table_is_not_sorted():
    with (ROOT / "tests" / "data" / "golden" / "calculator_cards.csv").open() as handle:
        printed = {row["gpu"]: row["cost_22_5m_tokens_usd"] for row in csv.DictReader(handle)}
    assert float(printed["A100-40GB"]) > float(printed["L40S-48GB"])
    assert float(printed["A100-80GB"]) > float(printed["H200-141GB"])
    says("A100 40GB ($3.83) stands above the L40S ($3.30), the A100 80GB ($5.12) above the H200 ($3.44)")


def test_implied_tflops():
    def by_hours(hours):
        return 22.5e6 / hours / 3600 * 6 * 8.03e9 / 0.3 / 1e12

    by_price = 0.79 / 3600 / 0.195e-6 * 6 * 8.03e9 / 0.3 / 1e12
    says(f"imply {by_hours(6.08):.0f} (RTX 4090), {by_price:.0f} (RTX 6000 Ada) and {by_hours(2.77):.0f} (L40S)")
    assert gpus.get("RTX 4090").bf16_dense_tflops == pytest.approx(by_hours(6.08), rel=0.002)
    assert gpus.get("L40S").bf16_dense_tflops == pytest.approx(by_hours(2.77), rel=0.002)
    assert gpus.get("RTX 6000 Ada").bf16_dense_tflops == pytest.approx(2 * by_price, rel=0.01)


def test_the_rtx_6000_ada_would_be_the_best_of_the_table():
    rated = gpus.get("RTX 6000 Ada").bf16_dense_tflops
    assert rated is not None
    per_million = laws.usd_per_million_tokens(0.79, laws.tokens_per_s(rated, 8.03e9))
    says(f"the card's {rated:g} dense TFLOPS", f"cost ${per_million:.3f} and be the **best**")
    assert per_million < min(float(row["usd_per_million_tokens_8b_qlora"]) for row in CARDS.values())
    ranked = sorted(CARDS, key=lambda name: float(CARDS[name]["usd_per_million_tokens_8b_qlora"]))
    assert ranked[-2] == "RTX-6000-Ada-48GB"


def test_bandwidths_that_the_rule_does_not_see():
    h100, h200 = (gpus.get(name).bandwidth_gb_s or 0 for name in ("H100-SXM-80GB", "H200-SXM-141GB"))
    small, large = (gpus.get(name).bandwidth_gb_s or 0 for name in ("A100-SXM4-40GB", "A100-SXM4-80GB"))
    dearer = float(CARDS["H200-141GB"]["price_usd_per_gpu_hour"]) / H100_002 - 1
    says(f"costs {percent(dearer)} more", f"{percent(h200 / h100 - 1)} more bandwidth")
    says(f"{small:,.0f} GB/s against {large:,.0f} GB/s, {percent(large / small - 1)} more")
    assert CARDS["H200-141GB"]["tokens_per_s_8b_qlora"] == CARDS["H100-80GB"]["tokens_per_s_8b_qlora"]


# ---- opposite advice ----


def test_the_verdicts_follow_from_the_price_ratios():
    ratios = {"000, 001": LINE, "002": H100_002 / A100_002, "004": RIGS["1x H100"] / RIGS["1x A100 80GB"]}
    for page, ratio in ratios.items():
        by_measured, by_rule = ("H100" if speedup > ratio else "A100" for speedup in (1.8, 989 / 312))
        says(f"| {page} | {ratio:.2f} | {by_measured} | {by_rule} |")


# ---- page 004 ----


def test_three_quarters_of_a_byte():
    assert f"{48 / 65:.2f}" == "0.74"
    says(f"unrounded it is {70 * 48 / 65:.1f} GB", f"70B needs {70 * 0.75:.1f} GB", "page 002 counts 44.3")


def test_the_exact_count_does_not_fit_what_the_round_one_does():
    assert models.get("meta-llama/Llama-3.1-70B").total_params == PARAMS_70B
    exact = PARAMS_70B * 16 / 1e9
    says(f"16 bytes are {exact:,.1f} GB, more than the rig has", "(1,120 GB of 1,128) and leaves 8 GB")
    assert 70 * 16 == 1120 < 8 * 141 == 1128 < exact


def test_four_cards_where_three_would_do():
    need = 140 * 1.2
    assert 2 * 80 < need <= 3 * 80
    says("4 × 80 = 320 GB; three would cover 168 GB (240)")
    four, one, two = RIGS["4x A100 80GB"], RIGS["1x B200"], RIGS["2x H200"]
    assert four < one < two
    says(f"Four A100 cost ${four:.2f} an hour", f"less than the B200 (${one:.2f}) and two H200 (${two:.2f})")


def test_forty_times_per_hour_and_eighty_four_per_run():
    says(f"$36.88 ÷ $0.92 = {36.88 / 0.92:.1f}, $43.46 ÷ $1.09 = {43.46 / 1.09:.1f}")
    runs = bytes_rule.assumed()
    full, qlora = float(runs[-1]["cost_usd"]), float(runs[0]["cost_usd"])
    says(f"${full:.2f} ÷ ${qlora:.2f} = {full / qlora:.0f} times")
    assert pytest.approx(43.46) == 8 * 5.4325


def test_assumed_hours():
    runs = bytes_rule.assumed()
    assert runs[0]["assumed_hours"] == runs[1]["assumed_hours"] == "10"
    says(f"costs {float(runs[1]['cost_usd']) / float(runs[0]['cost_usd']):.2f} times as much per run")
    assert runs[2]["gpu_hours"] == runs[3]["gpu_hours"] == "24"
    b200, h200 = (gpus.get(name).bf16_dense_tflops or 0 for name in ("B200-180GB", "H200-SXM-141GB"))
    says(f"their peaks differ {b200 / h200:.2f} times ({b200:,.0f} against {h200:g})")


def test_a_minute_more_than_a_block():
    says(f"draws a second block (${2 * 10 * 0.92:.2f} instead of ${10 * 0.92:.2f}")


def test_trainable_parameters_of_lora():
    # rank x (in + out) of q, k, v, o, gate, up, down of one layer: hidden 8192, kv 1024, MLP 28672; 80 layers
    layer = 2 * (8192 + 8192) + 2 * (8192 + 1024) + 3 * (8192 + 28672)
    trained = 16 * layer * 80
    says(f"{trained / 1e6:.1f}M of 70.55B, {PARAMS_70B / trained:.0f} times fewer")


# ---- memory ----


def memory(model, method, stack):
    job = {"method": method, "lora_rank": 16, "seq_len": 2048, "global_batch": 1}
    fixed = {"framework": stack, "micro_batch": 1} | ({} if stack == "unsloth" else {"checkpointing": "full"})
    return verbs.estimate(model, Rig(gpu="B200-180GB"), job, fixed).memory


def gb(gib):
    return gib * 1024**3 / 1e9


def test_bytes_per_parameter_that_the_figures_imply():
    small, large = (17.9 - 6.2) / 8.03, (146.6 - 44.3) / 70.6
    says("lie 11.7 GB for 8.03B parameters and 102.3 GB for 70.6B")
    says(f"2 − {small:.3f} = {2 - small:.2f} and 2 − {large:.3f} = {2 - large:.2f} bytes a parameter")
    # bitsandbytes: 4 bits, one byte a block of 64, its scales packed again by 256 fp32; Llama 8B: 128,256 words x 4,096
    packed = 0.5 + 1 / 64 + 4 / (64 * 256)
    head = 2 * 128_256 * 4096
    stored = (8_030_261_248 - head) * packed + head * 2
    says(f"({packed:.3f} bytes with double quantisation)", f"which makes {stored / 1e9:.1f} GB of an 8B model")
    says(f"and not {0.55 * 8.03:.1f}")
    assert gb(memory("meta-llama/Llama-3.1-8B", "qlora", "trl").lines["base weights"]) == pytest.approx(
        stored / 1e9, abs=0.01
    )


def test_reasons_why_the_stacks_differ():
    trl, axolotl = (memory("meta-llama/Llama-3.1-8B", "qlora", stack) for stack in ("trl", "axolotl"))
    loss = gb(trl.lines["logits and loss"])
    says(f"several copies: {loss:.1f} GB at 2,048 tokens")
    assert loss == pytest.approx(6.2 / 2, rel=0.1)
    assert axolotl.lines.get("logits and loss", 0) < 0.1
    plain, upcast = (gb(found.lines["base weights"]) for found in (trl, axolotl))
    says(f"({plain:.1f} becomes {upcast:.1f} GB for 8B)")


def test_device_against_allocated_and_the_spread_of_the_stacks():
    rows = [("meta-llama/Llama-3.1-8B", "qlora"), ("meta-llama/Llama-3.1-70B", "qlora")]
    for model, method in rows:
        found = [memory(model, method, stack) for stack in ("trl", "axolotl", "unsloth")]
        assert all(1 <= gb(one.device_gib - one.allocated_gib) <= 3 for one in found)
    spread = [gb(one.allocated_gib) for one in found]
    says(f"by up to {max(spread) - min(spread):.1f} GB for the same 70B QLoRA")


def test_the_ranges_of_perrun_lie_below_the_ratio_of_peaks():
    rows = [line.split("|") for line in (ROOT / "docs" / "seeds.md").read_text().splitlines() if " to " in line]
    highs = [float(cells[5].split(" to ")[1]) for cells in rows if len(cells) == 7 and cells[1].startswith(" QLoRA")]
    assert len(highs) == 2
    assert max(highs) < 989 / 312
