"""Price files that people write: what is read, what is refused, and how every mistake is said."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun.errors import InvalidInput
from perrun.prices import files, snapshot
from perrun.prices.cells import CURRENCIES
from perrun.prices.quote import TERMS, Quote

HEADER = "provider,gpu,n_gpus,usd_per_hour,observed_at"


def write(tmp_path, text, name="mine.csv"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def problems(tmp_path, row, header=HEADER):
    return files.read(write(tmp_path, f"{header}\n{row}\n"))[1]


def test_a_plain_file(tmp_path):
    file = write(tmp_path, f"{HEADER},term\nmycloud,H100 SXM,8,16.5,2026-11-01,reserved\n")
    (quote,) = files.load(file)
    assert (quote.provider, quote.gpu, quote.n_gpus, quote.usd_per_hour) == ("mycloud", "H100-SXM-80GB", 8, 16.5)
    assert (quote.term, quote.observed_at, quote.source) == ("reserved", date(2026, 11, 1), "mine.csv")
    (offer,) = snapshot.load(file)
    assert offer.rig.gpu == "H100-SXM-80GB"


@pytest.mark.parametrize(
    ("row", "column", "what"),
    [
        ("a,H100 SXM,1,-2,2026-11-01", "usd_per_hour", "-2 is out of range"),
        ("a,H100 SXM,1,0,2026-11-01", "usd_per_hour", "0 is out of range"),
        ("a,H100 SXM,1,nan,2026-11-01", "usd_per_hour", "nan is out of range"),
        ("a,H100 SXM,1,inf,2026-11-01", "usd_per_hour", "inf is out of range"),
        ('a,H100 SXM,1,"2,50",2026-11-01', "usd_per_hour", "'2,50' is not a number"),
        ("a,H100 SXM,1,1_0,2026-11-01", "usd_per_hour", "'1_0' is not a number"),
        ("a,H100 SXM,1.5,2,2026-11-01", "n_gpus", "1.5 is no count"),
        ("a,H100 SXM,0,2,2026-11-01", "n_gpus", "0 is no count"),
        ("a,H100 SXM,,2,2026-11-01", "n_gpus", "is empty"),
        ("a,H1000,1,2,2026-11-01", "gpu", "H1000"),
        ("a,,1,2,2026-11-01", "gpu", "is empty"),
        (" ,H100 SXM,1,2,2026-11-01", "provider", "is empty"),
        ("a,H100 SXM,1,2,", "observed_at", "is empty"),
        ("a,H100 SXM,1,2,01.11.2026", "observed_at", "'01.11.2026' is no date"),
        ("a,H100 SXM,1,2,2026-13-01", "observed_at", "'2026-13-01' is no date"),
        (f"a,H100 SXM,1,2,{date.today() + timedelta(days=3)}", "observed_at", "has not come yet"),
        ("a,H100 SXM,1,,2026-11-01", "usd_per_hour", "is empty"),
        ("a,H100 SXM,1,2,2026-11-01,extra", "", "more cells"),
    ],
)
def test_a_mistake_is_said_with_line_column_and_what_is_allowed(tmp_path, row, column, what):
    (problem,) = problems(tmp_path, row)
    assert (problem.line, problem.column) == (2, column)
    assert what in problem.what
    assert problem.allowed


def test_every_mistake_of_a_file_is_found_and_nothing_is_loaded(tmp_path):
    file = write(tmp_path, f"{HEADER}\na,H100 SXM,1,2,2026-11-01\na,H100 SXM,1,-2,2026-11-01\na,X,1,2,2026-11-01\n")
    quotes, found = files.read(file)
    assert len(quotes) == 1
    assert [(one.line, one.column) for one in found] == [(3, "usd_per_hour"), (4, "gpu")]
    with pytest.raises(InvalidInput, match=r"line 3, usd_per_hour: -2 is out of range \(and 1 more\)"):
        files.load(file)


def test_unknown_term_and_currency_list_what_is_allowed(tmp_path):
    (term,) = problems(tmp_path, "a,T4,1,2,2026-11-01,weekly", f"{HEADER},term")
    assert set(TERMS) == set(term.allowed.split(", "))
    (money,) = problems(tmp_path, "a,T4,1,2,2026-11-01,XYZ", f"{HEADER},currency")
    assert set(CURRENCIES) == set(money.allowed.split(", "))


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ("provider,gpu,n_gpus,usd_per_hour", "no column 'observed_at'"),
        (f"{HEADER},usd_per_day", "unknown column 'usd_per_day'"),
        (f"{HEADER},gpu", "a column twice"),
        ("", "no column"),
    ],
)
def test_a_wrong_header(tmp_path, header, match):
    with pytest.raises(InvalidInput, match=match) as caught:
        files.read(write(tmp_path, f"{header}\n"))
    assert "usd_per_hour" in caught.value.expected


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(InvalidInput, match="no price file"):
        files.read(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(b"provider\xe9\n")
    with pytest.raises(InvalidInput, match="UTF-8"):
        files.read(tmp_path / "latin.csv")
    with pytest.raises(InvalidInput, match="holds no price"):
        files.read(write(tmp_path, HEADER + "\n"))


def test_capacity_blocks_can_be_named_by_their_scheme(tmp_path):
    # whole days up to two weeks, then weeks up to half a year
    file = tmp_path / "blocks.csv"
    file.write_text(
        "provider,gpu,n_gpus,usd_per_hour,observed_at,term,reservation_hours\n"
        "aws,H100 SXM,8,31.46,2026-11-20,reserved,capacity-blocks\n"
    )
    (quote,) = files.load(file)
    assert quote.reservation_hours[:2] == (24.0, 48.0)
    assert quote.reservation_hours[13:15] == (14 * 24.0, 21 * 24.0)
    assert quote.reservation_hours[-1] == 182 * 24.0


def test_another_currency_needs_a_rate_with_its_date(tmp_path):
    header = "provider,gpu,n_gpus,price_per_hour,currency,usd_per_currency,rate_as_of,observed_at"
    (quote,) = files.load(write(tmp_path, f"{header}\nseeweb,L40S,1,2.00,eur,1.10,2026-11-01,2026-11-01\n"))
    assert quote.usd_per_hour == pytest.approx(2.20)
    assert (quote.currency, quote.price_per_hour) == ("EUR", 2.0)
    (problem,) = problems(tmp_path, "seeweb,L40S,1,2.00,EUR,,,2026-11-01", header)
    assert problem.column == "usd_per_currency"
    (problem,) = problems(tmp_path, "seeweb,L40S,1,2.00,EUR,1.1,,2026-11-01", header)
    assert problem.column == "rate_as_of"


def test_an_owned_card_costs_depreciation_and_power(tmp_path):
    header = "provider,gpu,n_gpus,term,purchase_usd,depreciation_years,utilisation,power_w,usd_per_kwh,observed_at"
    (quote,) = files.load(write(tmp_path, f"{header}\nhome,RTX 4090,2,owned,4383,2,0.5,900,0.30,2026-11-01\n"))
    # $4383 over 2 years of 8766 h, half of them used: $0.50; 0.9 kW at $0.30: $0.27
    assert quote.usd_per_hour == pytest.approx(0.50 + 0.27)
    (problem,) = problems(tmp_path, "home,RTX 4090,2,owned,4383,,,,,2026-11-01", header)
    assert (problem.column, problem.allowed) == ("depreciation_years", "both or neither")


def test_yaml_gives_the_same_quotes_and_the_lines_of_mistakes(tmp_path):
    text = (
        "- provider: mine\n  gpu: H100 SXM\n  n_gpus: 8\n  usd_per_hour: 16\n  observed_at: 2026-11-01\n"
        "  block_gpu_hours: [10, 24]\n"
        "- provider: mine\n  gpu: H100 SXM\n  n_gpus: true\n  usd_per_hour: 16\n  observed_at: 2026-11-01\n"
    )
    quotes, found = files.read(write(tmp_path, text, "mine.yaml"))
    assert [(quote.n_gpus, quote.block_gpu_hours, quote.observed_at) for quote in quotes] == [
        (8, (10, 24), date(2026, 11, 1))
    ]
    assert [(one.line, one.column) for one in found] == [(7, "n_gpus")]


@pytest.mark.parametrize(
    ("text", "match"),
    [("a: [", "no YAML"), ("provider: x\n", "no list"), ("- 3\n", "no list"), ("- gpus: 3\n", "unknown field 'gpus'")],
)
def test_broken_yaml(tmp_path, text, match):
    with pytest.raises(InvalidInput, match=match):
        files.read(write(tmp_path, text, "mine.yml"))


TEXT = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=12).map(str.strip)
ABOVE_ZERO = st.floats(1e-6, 1e6)


def quote(**given):
    """Hypothesis would fill in the defaults of Quote at random."""
    return Quote(**given)


QUOTES = st.builds(
    quote,
    provider=TEXT.filter(bool),
    gpu=st.sampled_from(["H100-SXM-80GB", "A100-80GB", "L4-24GB"]),
    n_gpus=st.integers(1, 64),
    usd_per_hour=ABOVE_ZERO,
    observed_at=st.dates(date(2020, 1, 1), date(2026, 11, 30)),
    source=TEXT.filter(bool),
    term=st.sampled_from(TERMS),
    instance=TEXT,
    region=TEXT,
    billing_increment_s=st.none() | ABOVE_ZERO,
    minimum_s=st.none() | st.floats(0, 1e6),
    egress_usd_per_gb=st.none() | st.floats(0, 10),
    block_gpu_hours=st.sampled_from([(), (10, 24, 168, 720)]),
    reservation_hours=st.sampled_from([(), (24.0, 48.5)]),
    note=TEXT,
)


@given(st.lists(QUOTES, min_size=1, max_size=5))
def test_what_is_written_is_read_back(quotes):
    assert files.rows(files.as_csv(quotes).splitlines(keepends=True)) == quotes
