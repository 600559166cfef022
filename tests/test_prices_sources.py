"""Every source from recorded shapes over a loopback server (gpuhunt over a file:// bucket), whole and broken."""

import contextlib
import json
import time
from datetime import date

import pytest

from asking import DATA, TODAY, fetcher, read, shown
from loopback import Reply
from perrun.errors import InvalidInput, Unavailable, UnknownName
from perrun.prices import names, sources
from perrun.prices.sources import pages
from perrun.prices.sources.http import MOST_BYTES, address_of, key_of


def test_every_source_says_what_it_is():
    assert {"gpuhunt", "skypilot", "runpod", "vast", "lambda", "shadeform", "prime", "azure"} <= set(sources.every())
    for source in sources.every().values():
        assert source.endpoint.startswith("https://")
        assert source.unit
        assert source.billing
        assert source.verified
        assert source.keys or not source.needs_key
    with pytest.raises(UnknownName, match="no price source 'nosuch'"):
        sources.chosen(["nosuch"])


def test_runpod_is_priced_by_the_gpu_and_keeps_its_form_factor(server):
    server.replies["/v2/catalog/gpus"] = Reply((DATA / "runpod.json").read_bytes())
    quotes, _ = read("runpod", server)
    by = {(q.provider, q.gpu, q.n_gpus): q.usd_per_hour for q in quotes}
    assert by["runpod-secure", "H100-PCIe-80GB", 1] == 2.39
    assert by["runpod-secure", "H100-PCIe-80GB", 8] == pytest.approx(8 * 2.39)
    assert by["runpod-community", "H100-PCIe-80GB", 2] == pytest.approx(2 * 1.99)
    assert by["runpod-secure", "H100-SXM-80GB", 4] == pytest.approx(4 * 2.99)
    assert ("runpod-community", "H100-SXM-80GB", 1) not in by  # a price of 0 is no price
    assert ("runpod-community", "H100-PCIe-80GB", 4) not in by  # maxCount is 2
    assert {q.term for q in quotes} == {"on-demand"}
    assert server.asked[0].headers["authorization"] == "Bearer secret"
    assert "Groq LPU" in {q.gpu for q in quotes}  # not in the facts: the checks count it


def test_vast_offers_are_whole_slices_with_their_own_storage_and_traffic(server):
    server.replies["/api/v0/bundles/"] = Reply((DATA / "vast.json").read_bytes())
    quotes, http = read("vast", server)
    assert shown(quotes) == [
        ("vast-ai", "RTX-4090-24GB", 2, "on-demand", 0.70, "Sweden, SE"),
        ("vast-ai", "RTX-4090-24GB", 2, "interruptible", 0.40, "Sweden, SE"),
        ("vast-ai", "H100-SXM-80GB", 8, "on-demand", 15.2, "Iceland, IS"),
        ("vast-ai", "A100-PCIe-80GB", 1, "on-demand", 0.75, ""),
        ("vast-ai", "A100-PCIe-80GB", 1, "interruptible", 0.5, ""),
        ("vast-ai", "RTX-3090-24GB", 0, "on-demand", 0.1, ""),  # without a count: the checks hold it back
    ]
    first = quotes[0]
    assert (first.storage_usd_per_gb_month, first.stopped_storage_usd_per_gb_month) == (0.20, 0.20)
    assert (first.egress_usd_per_gb, first.ingress_usd_per_gb, first.ram_gib) == (0.003, 0.002, 62.5)
    assert http.missing == []
    assert json.loads(server.asked[0].body)["verified"] == {"eq": True}


def test_lambda_cents_and_regions(server):
    server.replies["/api/v1/instance-types"] = Reply((DATA / "lambda.json").read_bytes())
    quotes, _ = read("lambda", server)
    assert shown(quotes) == [
        ("lambda", "H100-SXM-80GB", 8, "on-demand", 23.92, "us-west-3"),
        ("lambda", "H100-SXM-80GB", 8, "on-demand", 23.92, "us-east-1"),
        ("lambda", "A10-24GB", 1, "on-demand", 0.75, "any"),
        ("lambda", "A100-SXM4-40GB", 8, "on-demand", 10.32, "us-south-1"),
    ]


def test_shadeform_cents_boot_times_and_availability(server):
    server.replies["/v1/instances/types"] = Reply((DATA / "shadeform.json").read_bytes())
    quotes, _ = read("shadeform", server)
    assert shown(quotes) == [
        ("shadeform-hyperstack", "H100-SXM-80GB", 8, "on-demand", 19.20, "canada-1"),
        ("shadeform-massedcompute", "RTX-A6000-48GB", 1, "on-demand", 0.57, "desmoines-usa-1"),
        ("shadeform-denvr", "A100-80GB", 1, "on-demand", 1.80, "houston"),  # form factor not said: stays unsaid
    ]
    assert [q.boot_s for q in quotes] == [300.0, None, None]
    assert server.asked[0].headers["x-api-key"] == "secret"


def test_prime_pages_and_spot(server):
    server.replies["/api/v1/availability/gpus"] = Reply((DATA / "prime.json").read_bytes())
    quotes, _ = read("prime", server)
    assert shown(quotes) == [
        ("prime-datacrunch", "H100-SXM-80GB", 1, "on-demand", 2.29, "FIN-02"),
        ("prime-datacrunch", "H100-SXM-80GB", 1, "interruptible", 0.80, "FIN-02"),
        ("prime-runpod", "A100-PCIe-80GB", 4, "on-demand", 6.56, "US"),
    ]
    assert "extra" in quotes[2].note


def test_prime_reads_every_page(server):
    item = json.loads((DATA / "prime.json").read_text())["items"][0]
    full = [{**item, "cloudId": f"machine-{n}"} for n in range(100)]

    def page(asked):
        number = int(asked.path.partition("page=")[2].partition("&")[0])
        return Reply(json.dumps({"items": full if number < 3 else full[:7]}))

    server.replies["/api/v1/availability/gpus"] = page
    quotes, _ = read("prime", server)
    assert len(quotes) == 207


def test_azure_pages_spot_windows_and_reservations(server):
    first = (DATA / "azure_1.json").read_text().replace("NEXT", f"{server.url}/page2")
    server.replies["/api/retail/prices"] = Reply(first)
    server.replies["/page2"] = Reply((DATA / "azure_2.json").read_bytes())
    quotes, _ = read("azure", server)
    assert shown(quotes) == [
        ("azure", "H100-SXM-80GB", 8, "on-demand", 98.32, "eastus"),
        ("azure", "H100-SXM-80GB", 8, "interruptible", 39.33, "eastus"),
        ("azure", "A100-PCIe-80GB", 1, "on-demand", 3.673, "westus3"),
    ]


def skypilot(server, *clouds):
    for cloud in clouds:
        server.replies[f"/{cloud}/vms.csv"] = Reply((DATA / "skypilot" / f"{cloud}.csv").read_bytes())
    return read("skypilot", server)


def test_skypilot_adds_host_and_gpu_of_gcp(server):
    quotes, _ = skypilot(server, "gcp")
    assert shown(quotes) == [
        ("gcp", "A100-SXM4-40GB", 1, "on-demand", 0.74 + 2.93, "us-central1"),
        ("gcp", "A100-SXM4-40GB", 1, "interruptible", round(0.37 + (1.1 + 1.5) / 2, 4), "us-central1"),
        ("gcp", "H100-SXM-80GB", 8, "on-demand", round(9.46 + 78.3, 4), "us-central1"),
        ("gcp", "H100-SXM-80GB", 8, "interruptible", 22.89, "us-central1"),
    ]


def test_skypilot_takes_the_median_of_zones_that_give_a_discount(server):
    quotes, _ = skypilot(server, "aws")
    assert shown(quotes) == [
        ("aws", "H100-SXM-80GB", 8, "on-demand", 55.04, "us-east-1"),
        ("aws", "H100-SXM-80GB", 8, "interruptible", 17.8, "us-east-1"),  # of 17.2 and 18.4; 55.04 is no discount
        ("aws", "A10G-24GB", 1, "on-demand", 1.006, "us-east-1"),
        ("aws", "A10G-24GB", 1, "interruptible", 0.45, "us-east-1"),
    ]
    assert quotes[1].note == "zones from $17.2 to $18.4"


def test_skypilot_runpod_spot_is_no_spot_and_memory_in_gb_is_understood(server):
    quotes, _ = skypilot(server, "runpod")
    assert shown(quotes) == [("runpod-secure", "H100-SXM-80GB", 1, "on-demand", 2.99, "US")]


def test_skypilot_machines_that_are_sold_interruptible_only(server):
    quotes, _ = skypilot(server, "verda")
    assert shown(quotes) == [
        ("verda", "B300-288GB", 2, "interruptible", 4.893, "FIN-03"),
        ("verda", "A100-SXM4-80GB", 1, "on-demand", 1.29, "FIN-01"),  # the snapshot knows verda's machine
        ("verda", "A100-SXM4-80GB", 1, "interruptible", 0.4515, "FIN-01"),
    ]


def test_skypilot_names_the_clouds_that_did_not_come(server):
    quotes, http = skypilot(server, "verda", "aws")
    assert {q.provider for q in quotes} == {"verda", "aws"}
    assert any(missing.startswith("gcp") for missing in http.missing)
    server.replies.clear()
    with pytest.raises(Unavailable, match="no cloud came"):
        read("skypilot", server)


def test_skypilot_with_other_columns_is_refused(server):
    server.replies["/aws/vms.csv"] = Reply("Instance,Cost\np5,1\n")
    with pytest.raises(Unavailable, match="has no columns"):
        read("skypilot", server)


def test_a_providers_own_price_page(server, tmp_path, monkeypatch):
    server.replies["/prices.json"] = Reply((DATA / "page.json").read_bytes())
    listing = tmp_path / "pages.csv"
    listing.write_text(f"lowcost,{server.url}/prices.json\n")
    monkeypatch.setenv(pages.PAGES, str(listing))
    source = sources.every()["lowcost"]
    quotes = list(source.parse(source.fetch(fetcher("lowcost", source.endpoint)), TODAY))
    assert [(q.gpu, q.term, q.usd_per_hour, q.observed_at, q.storage_usd_per_gb_month) for q in quotes] == [
        ("H100-SXM-80GB", "on-demand", 1.68, date(2026, 10, 19), 0.08),
        ("H100-SXM-80GB", "interruptible", 0.84, date(2026, 10, 19), 0.08),
    ]
    assert {q.provider for q in quotes} == {"lowcostgpu"}


def test_an_index_as_llms_txt_leads_to_the_price_list(server):
    server.replies["/en/prices.json"] = Reply((DATA / "page.json").read_bytes())
    server.replies["/en/llms.txt"] = Reply(
        "# Lowcost\n\n- [Cards](/en/cards.json): what there is\n- [Prices](prices.json): per hour\n"
        "- [Elsewhere](https://example.org/prices.json): of somebody else\n"
    )
    source = pages.listed_source("lowcost", f"{server.url}/en/llms.txt")
    quotes = list(source.parse(source.fetch(fetcher("lowcost", source.endpoint)), TODAY))
    assert [quote.usd_per_hour for quote in quotes] == [1.68, 0.84]
    server.replies["/en/llms.txt"] = Reply("# Lowcost\n\nno links today\n")
    with pytest.raises(Unavailable, match="links to 0 price lists"):
        source.fetch(fetcher("lowcost", source.endpoint))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (
            {"prices": [{"gpu": "H100 SXM", "n_gpus": 1, "usd_per_day": 3}]},
            "price 1 has an unknown field 'usd_per_day'",
        ),
        ({"prices": [{"gpu": "H100 SXM", "n_gpus": 1, "usd_per_hour": -3}]}, "price 1, usd_per_hour"),
        ({"cards": []}, "without prices"),
        ("text", "without prices"),
    ],
)
def test_a_price_page_that_changed_is_refused_whole(data, match):
    with pytest.raises(Unavailable, match=match):
        list(pages.parse_as("page", data, TODAY))


def test_a_list_of_pages_that_is_none(tmp_path):
    (tmp_path / "pages.csv").write_text("lowcost\n")
    with pytest.raises(InvalidInput, match="has the line 'lowcost'"):
        pages.listed(str(tmp_path / "pages.csv"))
    with pytest.raises(InvalidInput, match="no file"):
        pages.listed(str(tmp_path / "absent.csv"))


PATHS = {
    "runpod": "/v2/catalog/gpus",
    "vast": "/api/v0/bundles/",
    "lambda": "/api/v1/instance-types",
    "shadeform": "/v1/instances/types",
    "prime": "/api/v1/availability/gpus",
    "azure": "/api/retail/prices",
}
BROKEN = {
    "an error page": Reply("<html>sorry</html>"),
    "another shape": Reply('{"message": "moved"}'),
    "half an answer": Reply('{"data": {"gpu_8x', 200),
    "cut off": Reply('{"offers": []', cut=True),
    "refused": Reply("{}", 401),
    "moved": Reply("", 404),
    "broken down": Reply("", 503),
    "null": Reply("null"),
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer_is_unavailable_and_nothing_else(server, name, kind):
    server.replies[PATHS[name]] = BROKEN[kind]
    with pytest.raises(Unavailable) as caught:
        read(name, server)
    assert "secret" not in str(caught.value)


def test_what_may_pass_is_tried_three_times(server):
    answers = iter([Reply("", 503), Reply("", 429), Reply((DATA / "runpod.json").read_bytes())])
    server.replies["/v2/catalog/gpus"] = lambda _: next(answers)
    quotes, _ = read("runpod", server)
    assert quotes
    assert len(server.asked) == 3


def test_what_will_not_pass_is_tried_once(server):
    server.replies["/v2/catalog/gpus"] = Reply("", 404)
    with pytest.raises(Unavailable, match="404"):
        read("runpod", server)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply", [Reply("[]", wait=30), Reply("[" + " " * 1000 + "]", drip=0.05)], ids=["hangs", "drips"]
)
def test_the_deadline_holds_against_a_server_that_hangs_or_drips(server, reply):
    server.replies["/v2/catalog/gpus"] = reply
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"in time|Timeout"):
        read("runpod", server, seconds=0.5)
    assert time.monotonic() - start < 2.0


def test_an_answer_without_end_is_cut(server, monkeypatch):
    monkeypatch.setattr("perrun.prices.sources.http.MOST_BYTES", 1000)
    assert MOST_BYTES > 10**8
    server.replies["/v2/catalog/gpus"] = Reply("[" + " " * 5000 + "]")
    with pytest.raises(Unavailable, match="more than"):
        read("runpod", server)


def test_addresses_and_keys_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("PERRUN_PRICES_VAST_URL", "http://mirror/")
    assert address_of("vast", "https://console.vast.ai") == "http://mirror"
    assert address_of("runpod", "https://api.runpod.io") == "https://api.runpod.io"
    monkeypatch.setenv("LAMBDA_API_KEY", "k")
    assert key_of(("NO_SUCH_KEY", "LAMBDA_API_KEY")) == "k"
    assert key_of(()) == ""


@pytest.mark.parametrize(
    ("name", "memory", "card"),
    [
        ("H100", 80, "H100-80GB"),  # PCIe or SXM: unsaid
        ("A100", 40, "A100-40GB"),
        ("A100_80GB", None, "A100-80GB"),
        ("H100NVL", 94, "H100-NVL-94GB"),
        ("A10G", 22.35, "A10G-24GB"),
        ("RTX4090", 24, "RTX-4090-24GB"),
        ("TPU v6e", None, "TPU v6e"),
    ],
)
def test_names_of_cards(name, memory, card):
    assert names.named(name, memory) == card


def test_no_shape_of_answer_breaks_a_parser():
    """Whatever JSON comes, a parser gives quotes or says Unavailable."""
    values = [None, 0, -1, "x", [], {}, True, [None], [{}], {"data": {"a": None}}, {"data": [1]}, {"items": [3]}]
    nested = [{"offers": v, "items": v, "Items": v, "instance_types": v, "data": v, "gpus": v} for v in values]
    single = [[{"price": v, "prices": v, "instance_type": v, "gpuCount": v, "num_gpus": v, "id": v}] for v in values]
    for name in PATHS:
        for data in (*values, *nested, *single):
            with contextlib.suppress(Unavailable):
                assert isinstance(list(sources.every()[name].parse(data, TODAY)), list)
