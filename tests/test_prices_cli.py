"""perrun prices as people call it: each command on a book of its own, with good input and bad."""

import csv
import io
import json
import os
from datetime import date

import pytest

from loopback import Reply, serving
from perrun.prices import desk, snapshot
from perrun.prices.quote import Quote
from perrun.surfaces.cli import run

HEADER = "provider,gpu,n_gpus,usd_per_hour,observed_at"


@pytest.fixture(autouse=True)
def folder(own_folder):
    return own_folder


@pytest.fixture
def call(capsys):
    """(exit code, stdout, stderr) of one command."""

    def called(*words):
        code = run(["prices", *map(str, words)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return called


@pytest.fixture
def mine(folder):
    file = folder / "mine.csv"
    file.write_text(f"{HEADER},term\nacme,H100 SXM,8,11.9,2026-11-20,reserved\nacme,L4,1,0.4,2026-11-20,on-demand\n")
    return file


def test_list_shows_the_shipped_prices_cheapest_first_with_their_dates(call):
    code, out, _ = call("list", "--gpu", "h100 sxm", "--term", "on-demand", "--csv", "--limit", 0)
    rows = list(csv.DictReader(io.StringIO(out)))
    each = [float(row["$/GPU-h"]) for row in rows]
    assert code == 0
    assert each == sorted(each)
    assert each[0] == 1.68  # lowcostgpu's page of 2026-10-19
    assert (rows[0]["provider"], rows[0]["seen"]) == ("lowcostgpu", "2026-10-19")


def test_list_for_people_says_how_old_the_prices_are(call):
    _, out, _ = call("list", "--gpu", "l4")
    assert "over a week: perrun prices refresh" in out
    assert "--limit 0 for all" in out


def test_list_as_of_a_day_knows_only_what_was_seen_by_then(call):
    _, out, _ = call("list", "--json", "--as-of", "2026-06-01")
    days = {row["observed_at"] for row in json.loads(out)}
    assert days
    assert max(days) <= "2026-06-01"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("list", "--gpu", "h1000"), "h1000"),
        (("list", "--provider", "nosuch"), "no offers of provider 'nosuch'"),
        (("list", "--as-of", "1.2.2026"), "is no date"),
        (("market", "--claim", "we are cheap"), "not understood"),
        (("market", "--claim", "nosuch: 30 % below the median"), "no offers of 'nosuch'"),
        (("history",), "everything is no chart"),
        (("import", "absent.csv"), "no price file"),
        (("refresh", "--source", "nosuch"), "no price source 'nosuch'"),
        (("check", "--accept", "7"), "no quote 7 waits"),
        (("interruption", "--hours", "-1", "--price", "1", "--on-demand", "2"), "hours is -1"),
        (
            ("interruption", "--hours", "9", "--price", "1", "--on-demand", "2", "--class", "7%"),
            "no interruption class",
        ),
        (("nosuch",), "nosuch"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, words, what):
    code, out, err = call(*words)
    assert code == 2
    assert what in err
    assert err.count("\n") == 1
    assert out == ""


def test_import_a_file_of_ones_own_and_plan_with_it(call, mine):
    code, out, _ = call("import", mine)
    assert code == 0
    assert out.startswith("file mine.csv: 2 new, 0 changed, 0 same, 0 gone")
    found = [offer for offer in snapshot.offers() if offer.provider == "acme"]
    assert {(offer.rig.gpu, offer.usd_per_hour, offer.term) for offer in found} == {
        ("H100-SXM-80GB", 11.9, "reserved"),
        ("L4-24GB", 0.4, "on-demand"),
    }
    mine.write_text(f"{HEADER},term\nacme,H100 SXM,8,10.9,2026-11-27,reserved\n")
    _, out, _ = call("import", mine)
    assert out.startswith("file mine.csv: 0 new, 1 changed, 0 same, 1 gone")


def test_a_plan_of_a_past_day_asks_the_book(call, mine):
    call("import", mine)
    mine.write_text(f"{HEADER},term\nacme,H100 SXM,8,10.9,2026-11-27,reserved\n")
    call("import", mine)

    def of_acme(day):
        return [
            (o.usd_per_hour, o.observed_at) for o in snapshot.offers(day) if (o.provider, o.rig.n_gpus) == ("acme", 8)
        ]

    assert of_acme(None) == [(10.9, date(2026, 11, 27))]
    assert of_acme(date(2026, 11, 26)) == [(11.9, date(2026, 11, 20))]
    assert of_acme(date(2026, 11, 1)) == []


def test_what_another_machine_refreshed_can_be_published_here(call, folder, mine):
    call("import", mine)
    (folder / "data" / "published.csv").unlink()
    assert not [offer for offer in snapshot.offers() if offer.provider == "acme"]
    code, out, _ = call("publish")
    assert (code, out.strip()) == (0, str(folder / "data" / "published.csv"))
    assert [offer for offer in snapshot.offers() if offer.provider == "acme"]


def test_nothing_is_imported_from_a_file_with_a_mistake_unless_partial(call, mine):
    with mine.open("a") as file:
        file.write("acme,H100 SXM,8,-5,2026-11-20,reserved\nacme,H1000,8,5,2026-11-20,reserved\n")
    code, out, err = call("import", mine)
    assert (code, out) == (2, "")
    assert "line 4, usd_per_hour: -5 is out of range" in err
    assert "line 5, gpu" in err
    assert call("list", "--provider", "acme")[0] == 2
    code, out, err = call("import", mine, "--partial")
    assert code == 0
    assert "2 new" in out
    assert "2 left out" in out
    assert "line 4, usd_per_hour" in err
    assert call("list", "--provider", "acme")[0] == 0


def test_a_price_that_cannot_be_is_held_back_until_somebody_decides(call, folder):
    file = folder / "cents.csv"
    file.write_text(f"{HEADER}\nacme,H100 SXM,1,250,2026-11-20\nacme,L4,1,40,2026-11-20\n")
    _, out, _ = call("import", file)
    assert "held back: acme 1x H100-SXM-80GB on-demand" in out
    assert "cents taken for dollars?" in out
    code, out, _ = call("check", "--json")
    assert code == 1
    ids = [one["id"] for one in json.loads(out)["held"] if one["provider"] == "acme"]
    code, out, _ = call("check", "--accept", ids[0], "--drop", ids[1])
    assert (code, "0 held back, 1 stored but doubtful" in out) == (1, True)
    _, out, _ = call("list", "--provider", "acme", "--json")
    assert [row["usd_per_hour"] for row in json.loads(out)] == [250.0]


def test_export_gives_a_file_that_import_takes(call, folder):
    target = folder / "out.csv"
    assert call("export", "--provider", "lowcostgpu", "--to", target)[0] == 0
    code, out, _ = call("import", target, "--name", "copy")
    assert code == 0
    assert out.startswith(f"copy: {len(target.read_text().splitlines()) - 1} new")


def test_market_in_figures_and_a_claim_with_its_exit_code(call):
    _, out, _ = call("market", "--gpu", "H100-SXM-80GB", "--term", "on-demand", "--json")
    (one,) = json.loads(out)
    assert one["minimum"] == 1.68
    assert one["minimum"] <= one["lower_quartile"] <= one["median"] <= one["upper_quartile"] <= one["maximum"]
    code, out, _ = call("market", "--claim", "lowcostgpu: at least 30 % below the median")
    assert code == 0
    assert "true, it holds for 4 of 4" in out
    code, out, _ = call("market", "--claim", "lowcostgpu: at least 60 % below the median")
    assert code == 1
    assert "points" in out


def test_history_as_a_chart_a_picture_and_rows(call, folder, mine):
    call("import", mine)
    mine.write_text(f"{HEADER},term\nacme,H100 SXM,8,9.9,2026-11-27,reserved\n")
    call("import", mine)
    picture = folder / "chart.svg"
    code, out, _ = call("history", "--provider", "acme", "--gpu", "h100", "--svg", picture)
    assert code == 0
    assert "A acme reserved 8x H100-SXM-80GB mine.csv: $1.238 per GPU-hour on 2026-11-27" in out
    assert picture.read_text().startswith("<svg")
    _, out, _ = call("history", "--provider", "acme", "--gpu", "h100", "--csv")
    assert [row["usd_per_hour"] for row in csv.DictReader(io.StringIO(out))] == ["11.9", "9.9"]


def test_sources_says_which_keys_are_missing_and_what_was_stored_when(call, monkeypatch):
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    monkeypatch.setenv("RUNPOD_API_KEY", "k")
    _, out, _ = call("sources", "--json")
    by = {row["source"]: row for row in json.loads(out)}
    assert by["lambda"]["key"] == "LAMBDA_API_KEY: missing"
    assert by["runpod"]["key"] == "RUNPOD_API_KEY: set"
    assert by["azure"]["key"] == "none"
    assert by["shipped"]["stored"] != "never"


def test_refresh_says_what_came_of_each_source(call, folder, monkeypatch):
    with serving() as server:
        server.replies["/good"] = Reply('[{"gpu": "L4", "n_gpus": 1, "usd_per_hour": 0.5}]')
        server.replies["/bad"] = Reply("", 404)
        listing = folder / "pages.csv"
        listing.write_text(f"good,{server.url}/good\nbad,{server.url}/bad\n")
        monkeypatch.setenv("PERRUN_PRICE_PAGES", str(listing))
        code, out, _ = call("refresh", "--source", "good", "--source", "bad", "--timeout", 5, "--csv")
        good, bad = csv.DictReader(io.StringIO(out))
        assert code == 0
        assert (good["source"], good["new"], good["gone"], good["held back"]) == ("good", "1", "0", "0")
        assert "failed, its previous prices stay" in bad["to know"]
        code, _, err = call("refresh", "--source", "bad", "--timeout", 5)
        assert code == 2
        assert "no source answered" in err
        code, out, err = call("refresh", "--source", "bad", "--json")
        assert (code, err) == (2, "")
        assert "HTTP 404" in json.loads(out)[0]["error"]
        asked = len(server.asked)
        code, out, _ = call("refresh", "--source", "good", "--due")
        assert (code, "nothing is due" in out, len(server.asked)) == (0, True, asked)


def test_interruption_report(call):
    words = ("interruption", "--hours", 50, "--price", 1, "--on-demand", 2)
    code, out, _ = call(*words, "--class", "5-10%")
    assert code == 0
    assert "cheaper: interruptible" in out
    _, out, _ = call(*words, "--mtbi", 20, "--json")
    found = json.loads(out)
    assert found["value"]["mtbi_hours"] == 20
    assert found["low"] == found["high"]


def test_ones_own_price_stands_in_the_market_of_its_card(call, folder):
    file = folder / "own.csv"
    file.write_text(
        f"{HEADER}\nacme,l4,1,0.05,2026-11-20\nacme,A100 80 GB,1,0.5,2026-11-20\nacme,A100,1,0.6,2026-11-20\n"
    )
    call("import", file)
    _, out, _ = call("market", "--gpu", "l4", "--term", "on-demand", "--json")
    (one,) = json.loads(out)
    assert (one["gpu"], one["minimum"]) == ("L4-24GB", 0.05)
    assert one["providers"] > 1
    _, out, _ = call("list", "--provider", "acme", "--json")
    assert {row["gpu"] for row in json.loads(out)} == {"L4-24GB", "A100-80GB", "A100"}  # what is not said stays unsaid


@pytest.mark.parametrize(
    "words",
    [("list",), ("history", "--gpu", "l4"), ("market",), ("export",), ("sources",), ("check",), ("publish",)],
)
def test_every_answer_can_be_had_as_json(call, words):
    code, out, _ = call(*words, "--json")
    assert code == 0
    assert json.loads(out) or words == ("check",)


def test_an_import_as_json_lists_what_it_left_out_and_held_back(call, mine):
    with mine.open("a") as file:
        file.write("acme,H1000,8,5,2026-11-20,reserved\nacme,L40S,1,99,2026-11-20,on-demand\n")
    code, out, _ = call("import", mine, "--partial", "--json")
    found = json.loads(out)
    assert (code, found["new"], found["quarantined"]) == (0, 2, 1)
    assert [(one["line"], one["column"]) for one in found["left_out"]] == [(4, "gpu")]
    assert [one["gpu"] for one in found["held"]] == ["L40S-48GB"]


def test_every_age_is_in_the_rows(call):
    _, out, _ = call("list", "--provider", "lowcostgpu", "--json")
    assert {row["age_days"] for row in json.loads(out)} == {(date.today() - date(2026, 10, 19)).days}


def test_a_price_without_its_count_is_never_published(call):
    """A source can say a card without a count; it waits, and cannot be accepted."""
    with desk.opened() as book:
        half = Quote("acme", "L4-24GB", 0, 0.4, date(2026, 11, 20), "acme")
        book.add("acme", [], held=[(half, "no count")], complete=False)
        (waiting,) = book.held()
    code, _, err = call("check", "--accept", waiting.id)
    assert (code, "the fields of a GPU belong together" in err) == (2, True)
    assert call("check", "--drop", waiting.id)[0] == 0


def test_each_book_publishes_for_itself(call, folder, mine, monkeypatch):
    call("import", mine)
    monkeypatch.setenv("PERRUN_DATABASE_URL", f"sqlite:///{folder}/elsewhere.db")
    assert not [offer for offer in snapshot.offers() if offer.provider == "acme"]
    call("import", mine)
    assert [offer for offer in snapshot.offers() if offer.provider == "acme"]
    assert len(list((folder / "data").glob("published*.csv"))) == 2


def test_what_a_kill_left_half_written_is_swept(call, folder, mine):
    call("import", mine)
    old, fresh = folder / "data" / ".begun-old", folder / "data" / ".begun-fresh"
    for file in (old, fresh):
        file.write_text("half")
    os.utime(old, (0, 0))
    call("publish")
    assert (old.exists(), fresh.exists()) == (False, True)


def test_another_database_by_its_url(call, folder, monkeypatch):
    monkeypatch.setenv("PERRUN_DATABASE_URL", f"sqlite:///{folder}/elsewhere.db")
    assert call("check")[0] == 0
    assert (folder / "elsewhere.db").exists()
    monkeypatch.setenv("PERRUN_DATABASE_URL", "oracle://x")
    code, _, err = call("check")
    assert code == 2
    assert "sqlite" in err
