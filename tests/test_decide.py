"""Break-even: arithmetic by hand, and a verdict that cannot contradict its numbers."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perrun import decide, verbs
from perrun.errors import NothingFits, PerrunError
from perrun.terms import Comparison, Job, Rig, Side, Strategy

LLAMA = "meta-llama/Llama-3.1-8B"
JOB = Job(model=LLAMA)


def side(gpu: str, price: float, hours: float, n_gpus: int = 1) -> Side:
    return Side(
        rig=Rig(gpu=gpu, n_gpus=n_gpus),
        precision="bf16-true",
        usd_per_gpu_hour=price,
        price_of="test",
        hours=hours,
        usd=hours * price * n_gpus,
        tokens_per_s=JOB.tokens / hours / 3600,
        strategy=Strategy(),
        bound_by="products",
    )


def test_the_job_of_seed_000():
    # QLoRA 8B: 1.5 h on A, 1.8x as fast, $0.468 against $1.680: $0.70 against $1.40, ratio 3.59
    found = decide.compared(JOB, side("A100-SXM4-80GB", 0.468, 1.5), side("H100-SXM-80GB", 1.68, 1.5 / 1.8), (0.9, 1.1))
    assert found.usd_a == pytest.approx(0.702)
    assert found.usd_b == pytest.approx(1.40)
    assert found.price_ratio == pytest.approx(3.59, abs=0.005)
    assert found.speedup == pytest.approx(1.8)
    assert found.flip_price_b == pytest.approx(0.468 * 1.8)
    assert found.hour_worth == pytest.approx((1.40 - 0.702) / (1.5 - 1.5 / 1.8))
    assert found.verdict.startswith("H100-SXM-80GB is 1.80x as fast at 3.59x the price: A100-SXM4-80GB costs 50% less")


def test_probability_is_a_half_at_the_break_even_and_nine_tenths_at_the_end_of_the_range():
    at = decide.compared(JOB, side("A", 1.0, 2.0), side("B", 2.0, 1.0), (0.8, 1.25))
    assert at.probability_b_cheaper == pytest.approx(0.5, abs=1e-6)
    # the 80 % range holds 10 % below its lower end: a price ratio there leaves 90 % for B
    low = decide.compared(JOB, side("A", 1.0, 2.0), side("B", 1.6, 1.0), (0.8, 1.25))
    assert low.probability_b_cheaper == pytest.approx(0.9, abs=1e-3)


PRICES = st.floats(0.05, 50)


@given(PRICES, PRICES, st.floats(0.1, 100), st.floats(0.1, 10), st.floats(1.01, 2.0))
@hypothesis_settings(deadline=None)
def test_sentence_numbers_and_sign_agree(price_a, price_b, hours, speedup, width):
    a, b = side("CARD-A", price_a, hours), side("CARD-B", price_b, hours / speedup)
    found = decide.compared(JOB, a, b, (1 / width, width))
    b_cheaper = found.usd_b < found.usd_a
    assert b_cheaper == (found.speedup > found.price_ratio) or math.isclose(found.speedup, found.price_ratio)
    assert (found.probability_b_cheaper > 0.5) == b_cheaper or math.isclose(found.usd_a, found.usd_b, rel_tol=1e-6)
    assert (price_b < found.flip_price_b) == b_cheaper or math.isclose(price_b, found.flip_price_b)
    winner = re.search(r": (CARD-[AB]) costs", found.verdict)
    assert winner is not None
    assert winner[1] == ("CARD-B" if b_cheaper else "CARD-A") or math.isclose(found.usd_a, found.usd_b, rel_tol=1e-6)
    assert found.speedup_low <= found.speedup <= found.speedup_high
    assert ("also faster" in found.verdict) == ((found.hours_saved > 0) == b_cheaper and "saves" not in found.verdict)
    assert ("saves" in found.verdict) == (found.hours_saved > 0 and not b_cheaper) or found.usd_a == found.usd_b


MEASURED = [
    # ranges per GPU of the notes beside the evidence (runs/NOTES.md, "What the pairs say")
    ({"method": "full"}, 8, (1.8, 2.6)),
    ({"method": "lora"}, 1, (1.67, 2.4)),
    ({"method": "qlora"}, 1, (1.7, 2.3)),
]


@pytest.mark.parametrize(("job", "n_gpus", "bounds"), MEASURED)
def test_a100_to_h100_as_people_measure(job, n_gpus, bounds):
    found = verbs.compare(LLAMA, "A100-SXM4-80GB", "H100-SXM-80GB", job, n_gpus=n_gpus, price_a=0.468, price_b=1.68)
    assert bounds[0] <= found.speedup <= bounds[1]
    assert found.usd_a < found.usd_b  # no bf16 pair beats 3.59


def test_fp8_on_a_card_without_it_says_so():
    found = verbs.compare(LLAMA, "H100-SXM-80GB", "A100-SXM4-80GB", {"method": "lora"}, price_a=1, price_b=1)
    assert found.fp8 is None
    assert "A100-SXM4-80GB has no FP8" in found.fp8_note


def test_what_does_not_fit_is_no_comparison():
    with pytest.raises(NothingFits, match="needs"):
        verbs.compare(
            "meta-llama/Llama-3.1-70B", "A100-SXM4-80GB", "H100-SXM-80GB", {"method": "full"}, price_a=1, price_b=1
        )


def test_no_price_is_no_guess():
    with pytest.raises(PerrunError, match="no reserved price"):
        verbs.compare(LLAMA, "A100-SXM4-80GB", "H100-SXM-80GB", term="reserved")


def test_the_answer_is_plain_json():
    found = verbs.compare(LLAMA, "A100-SXM4-80GB", "H100-SXM-80GB", price_a=1, price_b=2)
    assert Comparison.model_validate_json(found.model_dump_json()) == found
