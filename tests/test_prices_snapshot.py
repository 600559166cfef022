"""The shipped snapshot: every row is valid, sourced and dated; the seed pages' prices are in it."""

import subprocess
import sys
from datetime import date

import pytest

from perrun.prices import snapshot, tables
from perrun.prices.names import slowest_of
from perrun.prices.quote import TERMS
from perrun.terms import Offer


@pytest.fixture(autouse=True)
def _no_book(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))


def found(provider, gpu, n_gpus=1, term="on-demand"):
    return [q for q in snapshot.shipped() if (q.provider, q.gpu, q.n_gpus, q.term) == (provider, gpu, n_gpus, term)]


def test_every_shipped_offer_is_valid():
    offers = snapshot.offers()
    assert len(offers) > 450
    for shipped in offers:
        assert Offer.model_validate(shipped.model_dump()) == shipped
        assert shipped.source
        assert shipped.term in TERMS


def test_every_row_of_the_evidence_is_there():
    # 376 rows of prices.csv: each with one or two prices (on-demand, interruptible) or one floor
    assert sum("github.com" in quote.source for quote in snapshot.shipped()) >= 376


@pytest.mark.parametrize(
    ("provider", "gpu", "n_gpus", "term", "usd", "day"),
    [
        ("lowcostgpu", "H100-SXM-80GB", 1, "on-demand", 1.680, date(2026, 10, 19)),
        ("lowcostgpu", "A100-SXM4-80GB", 1, "on-demand", 0.468, date(2026, 10, 19)),
        ("lowcostgpu", "H100-SXM-80GB", 1, "interruptible", 0.840, date(2026, 10, 19)),
        ("lowcostgpu", "A100-SXM4-80GB", 1, "interruptible", 0.234, date(2026, 10, 19)),
        ("lowcostgpu", "P4-8GB", 1, "on-demand", 0.019, date(2026, 10, 19)),
        ("gpuwithcrypto", "L40S-48GB", 1, "prepaid-block", 0.82, date(2026, 10, 29)),
        ("gpuwithcrypto", "A100-80GB", 4, "prepaid-block", 3.68, date(2026, 10, 29)),
        ("gpuwithcrypto", "H100-80GB", 8, "prepaid-block", 18.56, date(2026, 10, 29)),
        ("gpuwithcrypto", "H200-141GB", 2, "on-demand", 6.14, date(2026, 10, 29)),
        ("gpuwithcrypto", "B200-180GB", 8, "prepaid-block", 36.88, date(2026, 10, 29)),
        ("massedcompute", "B200-180GB", 8, "on-demand", 43.46, date(2026, 10, 29)),
        ("thunder-compute", "A100-80GB", 1, "on-demand", 1.09, date(2026, 10, 29)),
    ],
)
def test_seed_prices_are_in_the_book_with_their_dates(provider, gpu, n_gpus, term, usd, day):
    assert [(quote.usd_per_hour, quote.observed_at) for quote in found(provider, gpu, n_gpus, term)] == [(usd, day)]


def test_blocks_and_volumes_of_the_seeds():
    assert {q.block_gpu_hours for q in snapshot.shipped() if q.term == "prepaid-block"} == {(10, 24, 168, 720)}
    by_provider = {offer.provider: offer for offer in snapshot.offers()}
    assert by_provider["lowcostgpu"].storage_usd_per_gb_month == 0.08
    assert (by_provider["lowcostgpu"].billing_increment_s, by_provider["lowcostgpu"].minimum_s) == (1, 0)
    assert (by_provider["gpuwithcrypto"].billing_increment_s, by_provider["gpuwithcrypto"].deposit_usd) == (60, 25)


def test_medians_of_seed_002_are_statistics_and_not_offers():
    medians = {row["gpu"]: (float(row["usd_per_gpu_hour"]), row["date_known"]) for row in tables.shipped("market.csv")}
    assert medians["H100-80GB"] == (2.69, "no")
    assert len(medians) == 7


def test_floors_of_markets_are_not_on_demand():
    floors = {q.provider for q in snapshot.shipped() if q.term == "market-floor"}
    assert floors == {"vast-ai", "akash", "salad", "spheron"}
    assert not floors & {q.provider for q in snapshot.shipped() if q.term == "on-demand"}


def test_names_without_form_factor_stand_for_their_slowest_card():
    for name, stands_in in tables.unsaid().items():
        assert stands_in == slowest_of(name)
    thunder = next(offer for offer in snapshot.offers() if offer.provider == "thunder-compute")
    assert thunder.rig.gpu == "A100-PCIe-80GB"
    assert "form factor not said" in thunder.note


def test_interruption_classes_reach_the_offers():
    p5 = [
        o for o in snapshot.offers() if (o.instance, o.region, o.term) == ("p5.48xlarge", "us-east-1", "interruptible")
    ]
    advisor = {
        row["region"]: row["class"] for row in tables.shipped("interruptions.csv") if row["instance"] == "p5.48xlarge"
    }
    assert [offer.interruption_class for offer in p5] == [advisor["us-east-1"]]


def test_of_two_prices_of_one_product_the_newer_counts():
    # AWS p4d in us-east-1 stands in two sources; the one of July is newer than the one of which only the year is known
    kept = [
        o for o in snapshot.offers() if (o.instance, o.region, o.term) == ("p4d.24xlarge", "us-east-1", "on-demand")
    ]
    assert [offer.observed_at for offer in kept] == [date(2026, 7, 20)]


def test_as_of_hides_what_was_not_known_yet():
    assert {o.provider for o in snapshot.offers(date(2026, 10, 20))} >= {"lowcostgpu"}
    assert "gpuwithcrypto" not in {o.provider for o in snapshot.offers(date(2026, 10, 20))}


def test_planning_needs_no_database_and_no_network_library():
    heavy = "{'sqlalchemy', 'httpx', 'yaml', 'alembic'}"
    code = (
        f"import sys; from perrun.prices import snapshot; snapshot.offers(); print(*sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
