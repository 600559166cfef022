"""Checks before publishing, figures of the market, claims, freshness, charts and interruption reports."""

import xml.etree.ElementTree as ET
from datetime import date
from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun.errors import InvalidInput, UnknownName
from perrun.prices import chart, checks, freshness, interruption, market, tables
from perrun.prices.quote import Quote, identity

DAY = date(2026, 11, 1)


def quote(usd, provider="a", gpu="H100-SXM-80GB", n_gpus=1, term="on-demand", **more):
    return Quote(provider, gpu, n_gpus, usd, more.pop("day", DAY), "s", term, **more)


def reasons(*quotes, before=None):
    return [reason for _, reason in checks.sift(quotes, before or {}).held]


# -- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (quote(250.0), "cents"),
        (quote(2.5 * 730), "per month"),
        (quote(20.0 * 730), "per month"),
        (quote(2.5, n_gpus=8), "the price of one GPU"),
        (quote(240.0, n_gpus=8), "the price of 8 taken for that of one GPU"),
        (quote(0.01), "costs"),
        (quote(0.01, gpu="B200-180GB"), "costs"),  # a catalogue once listed a B200 so
    ],
)
def test_units_that_were_mixed_up_are_held_back_with_a_guess(bad, why):
    (reason,) = reasons(bad)
    assert why in reason


def test_the_shipped_snapshot_passes_its_own_checks():
    from perrun.prices import snapshot

    assert checks.sift(snapshot.shipped(), {}).held == []
    assert checks.sift(snapshot.shipped(), {}).unknown == {}


def test_interruptible_above_on_demand_is_noticed():
    dear = quote(3.0, term="interruptible", instance="m")
    (reason,) = reasons(quote(2.0, instance="m"), dear)
    assert "above on-demand" in reason
    assert reasons(quote(2.0, instance="m"), dear._replace(usd_per_hour=1.0)) == []


def test_eight_at_the_price_of_one_is_noticed():
    (reason,) = reasons(quote(2.9), quote(2.9, n_gpus=8, gpu="H100-SXM-80GB"))
    assert "one" in reason


def test_the_fields_of_a_gpu_come_together_or_wait():
    sifted = checks.sift([quote(2.0, n_gpus=0), quote(2.0, gpu=""), quote(2.0)], {})
    assert sifted.good == [quote(2.0)]
    assert [reason.partition(" at ")[0] for _, reason in sifted.held] == [
        "H100-SXM-80GB without a count",
        "1 GPUs without a card",
    ]


def test_an_owned_card_may_cost_its_power_alone():
    # 0.7 kW x $0.20/kWh, written off: below what anybody sells an H100 for
    assert reasons(quote(0.14, term="owned")) == []
    assert reasons(quote(0.14))


def test_jumps_are_measured_from_the_last_price():
    now = quote(2.0)
    assert reasons(now, before={identity(now): 1.9}) == []
    (reason,) = reasons(now, before={identity(now): 6.0})
    assert "$6 before, $2 now" in reason
    spot = quote(1.0, term="interruptible")
    assert reasons(spot, before={identity(spot): 3.0}) == []  # a market moves more
    assert reasons(spot, before={identity(spot): 9.0})


def test_unknown_cards_are_counted_not_stored():
    sifted = checks.sift([quote(1.0, gpu="Tenstorrent n300"), quote(2.0)], {})
    assert sifted.unknown == {"Tenstorrent n300": 1}
    assert len(sifted.good) == 1


# -- the market ------------------------------------------------------------------------------------------------------


def test_quartiles_by_hand():
    # per GPU: 1, 2, 3, 4, 10; type 7 quartiles of five values are the second and the fourth
    found = [quote(1.0), quote(4.0, n_gpus=2), quote(24.0, "b", n_gpus=8), quote(4.0, "c"), quote(10.0, "d")]
    (one,) = market.markets(market.columns_of(found))
    assert (one.minimum, one.lower_quartile, one.median, one.upper_quartile, one.maximum) == (1, 2, 3, 4, 10)
    assert (one.n, one.providers, one.oldest, one.newest) == (5, 4, DAY, DAY)


def test_change_since_the_earlier_market():
    before, later = market.columns_of([quote(2.0), quote(4.0)]), date(2026, 11, 8)
    (one,) = market.markets(market.columns_of([quote(2.7), quote(3.9, day=later)]), before)
    assert one.change == pytest.approx(3.3 / 3.0 - 1)
    (new,) = market.markets(market.columns_of([quote(1.0, gpu="L4-24GB", day=later)]), before)
    assert new.change is None
    (same,) = market.markets(before, before)  # nobody looked since: not the same as "did not move"
    assert same.change is None


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30))
def test_statistics_are_in_order(values):
    (one,) = market.markets(market.columns_of(quote(value) for value in values))
    assert one.minimum <= one.lower_quartile <= one.median <= one.upper_quartile <= one.maximum
    assert (one.minimum, one.maximum) == (min(values), max(values))


def test_a_claim_is_true_or_false_and_by_how_much():
    others = [quote(usd, name) for usd, name in ((2.0, "b"), (3.0, "c"), (4.0, "d"))]
    claim = market.Claim.parse("a: at least 30 % below the median")
    (true,) = market.check_claim(claim, [quote(1.8), *others])
    assert (true.reference, true.holds) == (3.0, True)
    assert true.below == pytest.approx(0.4)
    assert true.margin == pytest.approx(0.1)
    (false,) = market.check_claim(claim, [quote(2.25), *others])  # 25 % below
    assert not false.holds
    assert false.margin == pytest.approx(-0.05)


def test_a_claim_that_just_holds_and_one_about_above():
    others = [quote(3.0, "b")]
    assert market.check_claim(market.Claim.parse("a: 30% below median"), [quote(2.1), *others])[0].holds
    above = market.Claim.parse("a: at least 10 % above the minimum")
    assert market.check_claim(above, [quote(3.4), *others])[0].holds
    assert not market.check_claim(above, [quote(3.2), *others])[0].holds


def test_claims_that_cannot_be_tested():
    with pytest.raises(InvalidInput, match="not understood"):
        market.Claim.parse("we are cheap")
    claim = market.Claim.parse("a: at least 30 % below the median")
    with pytest.raises(UnknownName, match="no offers of 'a'"):
        market.check_claim(claim, [quote(1.0, "b")])
    with pytest.raises(InvalidInput, match="nobody else"):
        market.check_claim(claim, [quote(1.0)])


# -- freshness -------------------------------------------------------------------------------------------------------


def test_over_a_week_old_is_said():
    today = date(2026, 11, 20)
    assert freshness.said([date(2026, 11, 18), date(2026, 11, 13)], today) == "prices 2 to 7 days old"
    assert "1 of 2 over a week" in freshness.said([date(2026, 11, 18), date(2026, 11, 12)], today)
    assert "all over a week" in freshness.said([date(2026, 1, 1)], today)
    assert freshness.said([], today) == ""


# -- charts ----------------------------------------------------------------------------------------------------------


def history():
    return [
        quote(2.0, day=date(2026, 1, 1)),
        quote(1.0, day=date(2026, 1, 11)),
        quote(8.0, "b", n_gpus=8, day=date(2026, 1, 6), instance="<m & n>"),
    ]


def test_a_price_holds_until_the_next_one():
    lines, more = chart.series_of(history())
    assert more == 0
    first = lines[0]
    days = [date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 10), date(2026, 1, 11)]
    assert [first.at(day) for day in days] == [None, 2.0, 2.0, 1.0]


def test_the_chart_in_letters():
    drawn = chart.text(chart.series_of(history())[0], width=11, height=5).splitlines()
    body = [line.partition("|")[2] for line in drawn[:5]]
    top = next(row for row in body if row.startswith("A"))
    assert top == "A" * 10  # $2 for ten days, then $1
    assert any(row.rstrip().endswith("B" * 6) or row.rstrip().endswith("BBBBBB") for row in body)
    assert "2026-01-01" in drawn[6]
    assert "2026-01-11" in drawn[6]
    assert "$1.000 per GPU-hour on 2026-01-11" in drawn[7]
    assert chart.text([]) == "no price\n"


def test_the_chart_as_svg_is_well_formed_and_steps():
    picture = ET.fromstring(chart.svg(chart.series_of(history())[0], "H100 & others"))
    names = {"s": "http://www.w3.org/2000/svg"}
    assert picture.find("s:title", names).text == "H100 & others"
    paths = [path.get("d") for path in picture.findall("s:path", names) if path.get("fill") == "none"]
    assert len(paths) == 2
    assert paths[0].count("V") == 1  # one step
    assert any("<m & n>" in (text.text or "") for text in picture.findall("s:text", names))
    ET.fromstring(chart.svg([], "nothing"))


def test_more_offers_than_can_be_told_apart_are_counted():
    lines, more = chart.series_of([quote(1.0, instance=f"m{n}") for n in range(11)])
    assert (len(lines), more) == (chart.MOST_SERIES, 11 - chart.MOST_SERIES)


# -- interruption ----------------------------------------------------------------------------------------------------


def test_the_own_mean_time_goes_first_and_has_no_range():
    found = interruption.report(50, 1.0, 2.0, mtbi_hours=20, interruption_class="<5%", checkpoint_s=180, restart_s=900)
    assert found.low == found.value == found.high
    # C = 0.05 h, M = 20 h: Young's interval is sqrt(2 x 0.05 x 20)
    assert found.value.young_hours == pytest.approx(2**0.5)
    # n equal stretches of tau = T / n near Daly's interval: n M (e^((tau + C) / M) - 1) e^(R / M)
    n = round(50 / found.value.interval_hours)
    expected = n * 20 * (np.exp((50 / n + 0.05) / 20) - 1) * np.exp(0.25 / 20)
    assert found.value.expected_hours == pytest.approx(expected)
    assert found.value.usd == pytest.approx(expected * 1.0)
    assert found.on_demand_usd == 100.0


def test_a_published_class_gives_a_range():
    found = interruption.report(100, 1.0, 3.0, interruption_class="5-10%")
    assert found.high.mtbi_hours == pytest.approx(-24 / log(1 - 0.10), rel=0.01)
    assert found.low.usd < found.value.usd < found.high.usd
    assert found.cheaper == "interruptible"


def test_quantiles_spread_around_the_mean():
    one = interruption.report(100, 1.0, 3.0, mtbi_hours=10).value
    hours = list(one.quantile_hours.values())
    assert hours == sorted(hours)
    assert hours[0] < one.expected_hours < hours[-1]
    assert one.quantile_usd[0.5] == pytest.approx(one.quantile_hours[0.5] * 1.0)


def test_at_the_break_even_the_verdict_flips():
    asked = {"hours": 50.0, "usd_per_hour": 1.0, "on_demand_usd_per_hour": 1.3, "checkpoint_s": 120, "restart_s": 1800}
    flip = interruption.report(**asked).break_even_mtbi_hours
    assert 0 < flip < inf
    assert interruption.report(**asked, mtbi_hours=flip * 1.3).cheaper == "interruptible"
    assert interruption.report(**asked, mtbi_hours=flip / 1.3).cheaper == "on-demand"


def test_no_discount_is_never_worth_it_and_a_hopeless_run_is_not_simulated():
    assert interruption.report(50, 2.0, 2.0, mtbi_hours=100).break_even_mtbi_hours == inf
    hopeless = interruption.report(1000, 1.0, 2.0, mtbi_hours=0.05, interval_hours=1000).value
    assert hopeless.quantile_hours == {}
    assert hopeless.usd > 1e6


@pytest.mark.parametrize(
    "wrong",
    [{"hours": 0}, {"usd_per_hour": -1}, {"interruption_class": "6%"}, {"mtbi_hours": 0}, {"hours": float("nan")}],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInput):
        interruption.report(**{"hours": 10, "usd_per_hour": 1, "on_demand_usd_per_hour": 2, **wrong})


def test_every_published_class_is_known():
    published = set(tables.interruption_classes().values())
    assert published <= set(tables.mtbi_classes())
    assert len(tables.interruption_classes()) == 220
