"""Break-even: arithmetic by hand, and verdicts that cannot contradict their numbers."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perrun import decide, verbs
from perrun.decide import breakeven
from perrun.errors import AmbiguousName, InvalidInput, MissingFact, NothingFits, UnknownName
from perrun.surfaces import cli
from perrun.terms import Comparison, CostLine, Job, Rig, Side, Strategy

LLAMA = "meta-llama/Llama-3.1-8B"
A100, H100 = "A100-SXM4-80GB", "H100-SXM-80GB"
JOB = Job(model=LLAMA)


def side(gpu: str, price: float, hours: float, n_gpus: int = 1, startup: float = 0.0, disk: float = 0.0) -> Side:
    """A side by hand: hours of training and of start-up at a price, and dollars of disk."""
    rate = price * n_gpus
    bill = [CostLine(name="training", quantity=hours, unit="h", usd=hours * rate)]
    bill += [CostLine(name="start-up", quantity=startup, unit="h", usd=startup * rate)] if startup else []
    bill += [CostLine(name="storage", quantity=1.0, unit="GB-month", usd=disk)] if disk else []
    return Side(
        rig=Rig(gpu=gpu, n_gpus=n_gpus),
        precision="bf16-true",
        usd_per_gpu_hour=price,
        price_of="test",
        hours=hours,
        usd=sum(line.usd for line in bill),
        cost_lines=bill,
        tokens_per_s=JOB.tokens / hours / 3600,
        strategy=Strategy(),
        bound_by="products",
    )


# ---- by hand ----


def test_the_job_of_seed_000():
    # QLoRA 8B: 1.5 h on A, 1.8x as fast, $0.468 against $1.680: $0.70 against $1.40, ratio 3.59
    found = decide.compared(JOB, side(A100, 0.468, 1.5), side(H100, 1.68, 1.5 / 1.8), (0.9, 1.1))
    assert found.usd_a == pytest.approx(0.702)
    assert found.usd_b == pytest.approx(1.40)
    assert found.price_ratio == pytest.approx(3.59, abs=0.005)
    assert found.break_even_speedup == pytest.approx(found.price_ratio)
    assert found.speedup == pytest.approx(1.8)
    assert found.flip_price_b == pytest.approx(0.468 * 1.8)
    assert found.hour_worth == pytest.approx((1.40 - 0.702) / (1.5 - 1.5 / 1.8))
    assert found.verdict.startswith(f"{H100} is 1.80x as fast at 3.59x the price: {A100} costs 50% less")


def test_what_is_no_training_moves_the_break_even():
    # A: 2 h at $1 = $2. B: half an hour of start-up and $0.10 of disk beside its 1 h, at $1.2: 1.2 + 0.6 + 0.1 = $1.90.
    # Both cost $2 when B trains (2 - 0.7) / 1.2 = 1.0833 h, which is 1.846 times as fast as A; the price ratio is 1.2.
    found = decide.compared(JOB, side("A", 1.0, 2.0), side("B", 1.2, 1.0, startup=0.5, disk=0.1), (0.9, 1.1))
    assert found.usd_b == pytest.approx(1.9)
    assert found.price_ratio == pytest.approx(1.2)
    assert found.break_even_speedup == pytest.approx(2 / ((2 - 0.7) / 1.2))
    # at $p: 1.5 p + 0.1 = 2
    assert found.flip_price_b == pytest.approx(1.9 / 1.5)
    assert found.probability_b_cheaper > 0.5


def test_where_b_bills_more_beside_its_training_than_a_in_all_no_speed_helps():
    found = decide.compared(JOB, side("A", 1.0, 1.0), side("B", 1.0, 0.1, startup=1.0, disk=1.5), (0.9, 1.1))
    assert found.break_even_speedup is None
    assert found.probability_b_cheaper == 0
    assert found.flip_price_b == 0


def test_probability_is_a_half_at_the_break_even_and_nine_tenths_at_the_end_of_the_range():
    at = decide.compared(JOB, side("A", 1.0, 2.0), side("B", 2.0, 1.0), (0.8, 1.25))
    assert at.probability_b_cheaper == pytest.approx(0.5, abs=1e-6)
    assert "both cost the same" in at.verdict
    # the 80 % range holds 10 % below its lower end: a price ratio there leaves 90 % for B
    low = decide.compared(JOB, side("A", 1.0, 2.0), side("B", 1.6, 1.0), (0.8, 1.25))
    assert low.probability_b_cheaper == pytest.approx(0.9, abs=1e-3)


def test_an_hour_of_waiting_turns_dollars():
    # B costs $1 more and saves half an hour: an hour is worth $2
    a, b = side("A", 1.0, 1.0), side("B", 4.0, 0.5)
    assert decide.compared(JOB, a, b, (0.9, 1.1)).hour_worth == pytest.approx(2.0)
    assert "not worth it at $1.50" in decide.compared(JOB, a, b, (0.9, 1.1), 1.5).verdict
    assert ", worth it at $3.00 an hour of waiting ($0.50 in all)" in decide.compared(JOB, a, b, (0.9, 1.1), 3).verdict


# ---- for any numbers ----

PRICES = st.floats(0.05, 50)
EXTRA = st.one_of(st.just(0.0), st.floats(0.01, 5.0))


@given(PRICES, PRICES, st.floats(0.1, 100), st.floats(0.1, 10), st.floats(1.01, 2.0), EXTRA, EXTRA, EXTRA, EXTRA)
@hypothesis_settings(deadline=None, max_examples=300)
def test_sentence_numbers_and_sign_agree(price_a, price_b, hours, speedup, width, start_a, start_b, disk_a, disk_b):
    a = side("CARD-A", price_a, hours, startup=start_a, disk=disk_a)
    b = side("CARD-B", price_b, hours / speedup, startup=start_b, disk=disk_b)
    found = decide.compared(JOB, a, b, (1 / width, width))
    difference = sum(line.usd for line in found.difference)
    assert difference == pytest.approx(found.usd_b - found.usd_a, abs=1e-9 * (found.usd_a + found.usd_b))
    if math.isclose(found.usd_a, found.usd_b, rel_tol=1e-6):
        return  # on the line itself either may be said
    b_cheaper = difference < 0
    even = found.break_even_speedup
    assert b_cheaper == (even is not None and found.speedup > even)
    assert (found.probability_b_cheaper > 0.5) == b_cheaper
    assert (price_b < found.flip_price_b) == b_cheaper
    winner = re.search(r": (CARD-[AB]) costs (\d+|under 1)% less per run than (CARD-[AB])", found.verdict)
    assert winner is not None
    assert (winner[1], winner[3]) == (("CARD-B", "CARD-A") if b_cheaper else ("CARD-A", "CARD-B"))
    dearer, cheaper = max(found.usd_a, found.usd_b), min(found.usd_a, found.usd_b)
    assert winner[2] in (f"{100 * (1 - cheaper / dearer):.0f}", "under 1")
    assert found.speedup_low <= found.speedup <= found.speedup_high
    wins_clock = (found.hours_saved > 0) == b_cheaper or not found.hours_saved
    assert ("also faster" in found.verdict or "as long" in found.verdict) == wins_clock
    assert ("saves" in found.verdict) == (not wins_clock) == (found.hour_worth is not None)
    assert f"{found.speedup:.2f}x as fast at {found.price_ratio:.2f}x the price" in found.verdict


@given(PRICES, st.floats(0.1, 100), st.floats(0.1, 10), EXTRA, EXTRA)
@hypothesis_settings(deadline=None)
def test_at_the_flip_price_and_at_the_break_even_both_cost_the_same(price, hours, speedup, start, disk):
    a, b = side("A", 1.0, hours), side("B", price, hours / speedup, startup=start, disk=disk)
    found = decide.compared(JOB, a, b, (0.9, 1.1))
    if found.flip_price_b:
        flipped = side("B", found.flip_price_b, hours / speedup, startup=start, disk=disk)
        assert flipped.usd == pytest.approx(a.usd)
    if found.break_even_speedup is not None:
        faster = side("B", price, hours / found.break_even_speedup, startup=start, disk=disk)
        assert faster.usd == pytest.approx(a.usd)


def test_a_difference_of_bills_is_a_bill():
    a = [CostLine(name="training", quantity=2, unit="h", usd=4), CostLine(name="egress", quantity=3, unit="GB", usd=1)]
    b = [CostLine(name="training", quantity=1, unit="h", usd=5), CostLine(name="storage", quantity=2, unit="GB", usd=2)]
    found = {line.name: (line.quantity, line.unit, line.usd) for line in breakeven.less(a, b)}
    assert found == {"training": (-1, "h", 1), "storage": (2, "GB", 2), "egress": (-3, "GB", -1)}


# ---- by the model ----

MEASURED = [
    # ranges per GPU of the notes beside the evidence (runs/NOTES.md, "What the pairs say")
    ({"method": "full"}, 8, (1.8, 2.6)),
    ({"method": "lora"}, 1, (1.67, 2.4)),
    ({"method": "qlora"}, 1, (1.7, 2.3)),
]


@pytest.mark.parametrize(("job", "n_gpus", "bounds"), MEASURED)
def test_a100_to_h100_as_people_measure(job, n_gpus, bounds):
    found = verbs.compare(LLAMA, A100, H100, job, n_gpus=n_gpus, price_a=0.468, price_b=1.68)
    assert bounds[0] <= found.speedup <= bounds[1]
    assert found.usd_a < found.usd_b  # no bf16 pair beats 3.59
    assert sum(found.a.time_lines.values()) == pytest.approx(found.a.hours)
    assert sum(found.a.memory_lines.values()) == pytest.approx(found.a.needs_gib)


def test_fp8_is_a_row_of_its_own_and_a_card_without_it_says_so():
    found = verbs.compare(LLAMA, A100, H100, {"method": "lora"}, price_a=1, price_b=1)
    assert found.fp8 is not None
    assert (found.fp8.a.precision, found.fp8.b.precision) == ("bf16-true", "fp8")
    assert found.fp8.speedup > found.speedup
    found = verbs.compare(LLAMA, H100, A100, {"method": "lora"}, price_a=1, price_b=1)
    assert found.fp8 is None
    assert f"{A100} has no FP8" in found.fp8_note


def test_what_does_not_fit_is_no_comparison():
    with pytest.raises(NothingFits, match="needs"):
        verbs.compare("meta-llama/Llama-3.1-70B", A100, H100, {"method": "full"}, price_a=1, price_b=1)


def test_no_price_is_no_guess():
    with pytest.raises(MissingFact, match="no reserved price"):
        verbs.compare(LLAMA, A100, H100, term="reserved")


def test_the_answer_is_plain_json():
    found = verbs.compare(LLAMA, A100, H100, price_a=1, price_b=2)
    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_rigs_of_different_size_are_priced_as_a_whole():
    found = verbs.compare(LLAMA, f"1x {H100}", f"8x {H100}", {"method": "lora"}, price_a=2, price_b=2)
    assert found.price_ratio == pytest.approx(8)
    assert 4 < found.speedup < 8
    assert found.verdict.startswith(f"8x {H100} is ")


def test_methods_on_one_rig_differ_in_what_was_changed_alone():
    found = verbs.compare(LLAMA, H100, H100, {"method": "qlora"}, against={"method": "lora"}, price_a=2, price_b=2)
    assert found.changes == {"method": "lora"}
    assert "method lora costs" in found.verdict
    assert (found.a.name, found.b.name) == ("method qlora", "method lora")
    with pytest.raises(InvalidInput, match="no setting"):
        verbs.compare(LLAMA, H100, H100, against={"budget_usd": 3}, price_a=2, price_b=2)


def test_offers_are_compared_by_their_whole_bill_and_a_node_is_billed_whole(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "provider,gpu,n_gpus,usd_per_hour,billing_increment_s,storage_usd_per_gb_month,observed_at,source\n"
        f"small,{H100},1,2.0,1,0.1,2026-10-19,test\nlarge,{H100},8,16.0,1,0.1,2026-10-19,test\n"
    )
    found = verbs.compare(LLAMA, f"{H100} at small", f"1x {H100} at large", {"method": "lora"}, prices=prices)
    bill = {line.name: line for line in found.b.cost_lines}
    # one of eight GPUs works, and seven are billed for as long
    assert bill["idle GPUs of the node"].usd == pytest.approx(7 * bill["training"].usd)
    assert found.usd_b > 7 * found.usd_a
    assert "8 GPUs are billed" in found.b.price_of
    assert found.usd_b == pytest.approx(sum(line.usd for line in found.b.cost_lines))
    assert found.break_even_speedup != pytest.approx(found.price_ratio)
    with pytest.raises(MissingFact, match="no machine with 4"):
        verbs.compare(LLAMA, f"4x {H100} at small", f"4x {H100} at large", prices=prices)


def test_hours_that_were_typed_in_say_so_in_their_line(capsys):
    assert cli.run(["compare", A100, H100, LLAMA, "--price-a", "1", "--price-b", "2", "--hours-a", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    hours, usd = (next(line for line in lines if line.startswith(name)) for name in ("hours ", "$ per run"))
    assert "6.00 (typed in)" in hours
    assert "6.00 (typed in)" in usd
    assert "over the speed-up" in hours
    assert any(f"hours of {A100} typed in, not predicted" in line for line in lines)
    found = verbs.compare(LLAMA, A100, H100, price_a=1, price_b=2, hours_a=6, hours_b=2)
    assert (found.usd_a, found.usd_b, found.speedup) == pytest.approx((6, 4, 3))
    assert found.probability_b_cheaper == pytest.approx(1.0)


def test_what_a_difference_of_memory_is_of(capsys):
    # a reference model is a second copy of the policy only where adapters do not give it for nothing
    command = ["compare", f"8x {H100}", f"8x {H100}", LLAMA, "--method", "full", "--price-a", "1", "--price-b", "1"]
    assert cli.run([*command, "--against", "objective=dpo", "--explain"]) == 0
    out = capsys.readouterr().out
    memory = out[out.index("GiB of one GPU  ") :] if "GiB of one GPU  " in out else out
    assert "reference" in memory
    found = verbs.compare(LLAMA, H100, H100, {"method": "lora"}, against={"objective": "dpo"}, price_a=1, price_b=1)
    lines = {line for line, gib in found.b.memory_lines.items() if gib > 0.1}
    assert not any("reference" in line for line in lines)


# ---- what turns it ----


def flips(found: Comparison) -> dict[str, tuple[float | None, bool]]:
    return {flip.what: (flip.at, flip.in_reason) for flip in found.sensitivity}


def test_what_turns_a_verdict_is_named_with_its_value():
    found = verbs.compare(LLAMA, A100, H100, {"method": "qlora"}, price_a=0.468, price_b=1.68)
    at = flips(found)
    assert at[f"price of {H100}"][0] == pytest.approx(0.468 * found.speedup)
    assert at[f"price of {A100}"][0] == pytest.approx(1.68 / found.speedup)
    assert at["speed-up"] == (pytest.approx(1.68 / 0.468), False)  # far above the 80 % range
    assert at["length of rows"] == (None, False)
    assert found.hour_worth is not None
    assert at["an hour of waiting"][0] == found.hour_worth
    assert found.flips.startswith("It flips with")
    assert "no length of rows" not in found.flips


def test_a_verdict_that_holds_at_every_price_asked_says_so():
    # the same machine for a tenth of the price, and both as fast: no offer of the card costs what would turn it
    found = verbs.compare(LLAMA, H100, H100, price_a=0.1, price_b=60)
    assert found.flips == "Nothing in reason flips it"


def test_at_the_price_that_is_named_the_verdict_is_the_other():
    first = verbs.compare(LLAMA, A100, H100, {"method": "lora"}, price_a=1, price_b=3)
    price = first.flip_price_b
    below = verbs.compare(LLAMA, A100, H100, {"method": "lora"}, price_a=1, price_b=price * 0.999)
    above = verbs.compare(LLAMA, A100, H100, {"method": "lora"}, price_a=1, price_b=price * 1.001)
    assert (below.usd_b < below.usd_a, above.usd_b < above.usd_a) == (True, False)


def test_rows_that_one_card_no_longer_holds_turn_it():
    found = verbs.compare(LLAMA, "RTX-4090-24GB", H100, {"method": "qlora"}, price_a=0.4, price_b=20)
    (row,) = [flip for flip in found.sensitivity if flip.what == "length of rows"]
    assert row.in_reason
    assert "RTX-4090-24GB no longer holds it" in row.said
    longer = {"method": "qlora", "seq_len": int(row.at or 0), "tokens_per_example": int(row.at or 0)}
    with pytest.raises(NothingFits):
        verbs.compare(LLAMA, "RTX-4090-24GB", H100, longer, price_a=0.4, price_b=20)


def test_epochs_turn_a_verdict_only_where_something_does_not_grow_with_them(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "provider,gpu,n_gpus,usd_per_hour,billing_increment_s,observed_at,source\n"
        f"one,{A100},1,1.0,1,2026-10-19,test\ntwo,{H100},1,2.0,1,2026-10-19,test\n"
    )
    data = {"method": "qlora", "examples": 500}
    found = verbs.compare(LLAMA, f"{A100} at one", f"{H100} at two", data, prices=prices)
    (flip,) = [one for one in found.sensitivity if one.what == "epochs"]
    assert flip.at is not None  # a dearer start-up against faster training
    sides = [
        verbs.compare(LLAMA, f"{A100} at one", f"{H100} at two", {**data, "epochs": flip.at * factor}, prices=prices)
        for factor in (0.9, 1.1)
    ]
    assert [one.usd_b < one.usd_a for one in sides] == [False, True]
    assert "epochs" not in flips(verbs.compare(LLAMA, A100, H100, data, price_a=1, price_b=2))


# ---- what is typed ----


@pytest.mark.parametrize(
    ("a", "error", "said"),
    [
        ("A100", AmbiguousName, "fits"),
        ("0x H100 SXM", InvalidInput, "no GPU"),
        ("H100 SXM at nobody", UnknownName, "nobody"),
        ("H100 SXM at azure (prepaid-block)", MissingFact, "no prepaid-block price of H100-SXM-80GB at azure"),
    ],
)
def test_a_side_that_cannot_be_is_named(a, error, said):
    with pytest.raises(error, match=said):
        verbs.compare(LLAMA, a, H100, price_b=1)


def test_two_counts_and_two_prices_of_a_side_contradict():
    with pytest.raises(InvalidInput, match="contradict"):
        verbs.compare(LLAMA, f"2x {H100}", H100, n_gpus=4, price_a=1, price_b=1)
    with pytest.raises(InvalidInput, match="contradict"):
        verbs.compare(LLAMA, f"{H100} at lambda", H100, price_a=1, price_b=1)


def test_nodes_are_billed_together():
    one = verbs.compare(LLAMA, f"8x {H100} at lambda", f"16x {H100} on 2 nodes at lambda", {"method": "full"})
    assert one.price_ratio == pytest.approx(2.0)
    assert one.b.usd_per_gpu_hour == one.a.usd_per_gpu_hour
    assert 1.2 < one.speedup < 2


def test_what_a_side_is_called_reads_back():
    found = verbs.compare(LLAMA, f"{H100} at lambda (on-demand)", f"8x {H100} at lowcostgpu (interruptible)")
    again = verbs.compare(LLAMA, found.a.name, found.b.name)
    assert (again.usd_a, again.usd_b) == (found.usd_a, found.usd_b)


# ---- tables ----
