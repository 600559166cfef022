"""gpuhunt by its own code over a bucket of files."""

import io
import zipfile

import pytest

from asking import TODAY, fetcher, shown
from perrun.errors import Unavailable
from perrun.prices import sources

COLUMNS = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data"
)


def bucket(folder, **rows):
    """gpuhunt's bucket: a version file and a zip with one CSV for each provider."""
    for provider, lines in rows.items():
        (folder / provider / "1").mkdir(parents=True)
        (folder / provider / "version").write_text("1")
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr(f"{provider}.csv", "\n".join([COLUMNS, *lines, ""]))
        (folder / provider / "1" / "catalog.zip").write_bytes(data.getvalue())
    return f"file://{folder}"


def row(machine, place, price, count, gpu, memory, spot="False"):
    return f"{machine},{place},{price},8,64.0,{count},{gpu},{memory},{spot},,nvidia,,x86,{{}}"


def test_gpuhunt_by_its_own_code_and_its_merged_form_factors_undone(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "unset")  # put back after the test
    base = bucket(
        tmp_path,
        runpod=[
            row("NVIDIA H100 PCIe", "EU-SE-1", 2.39, 1, "H100", 80.0),
            row("NVIDIA H100 80GB HBM3", "US-KS-2", 23.92, 8, "H100", 80.0),
            row("NVIDIA A100 80GB PCIe", "SE", 1.19, 1, "A100", 80.0),
        ],
        aws=[
            row("p4d.24xlarge", "us-east-1", 21.96, 8, "A100", 40.0),
            row("p4d.24xlarge", "us-east-1", 9.1, 8, "A100", 40.0, "True"),
        ],
        verda=[row("9Z100.new", "FIN-01", 1.5, 1, "H100", 80.0)],
        lambdalabs=[row("gpu_1x_h100_nvl", "us-east-1", 3.1, 1, "H100NVL", 94.0)],
    )
    source, http = sources.every()["gpuhunt"], fetcher("gpuhunt", base)
    quotes = list(source.parse(source.fetch(http), TODAY))
    assert sorted(shown(quotes)) == [
        ("aws", "A100-SXM4-40GB", 8, "interruptible", 9.1, "us-east-1"),
        ("aws", "A100-SXM4-40GB", 8, "on-demand", 21.96, "us-east-1"),
        ("lambda", "H100-NVL-94GB", 1, "on-demand", 3.1, "us-east-1"),
        ("runpod-community", "A100-PCIe-80GB", 1, "on-demand", 1.19, "SE"),
        ("runpod-secure", "H100-PCIe-80GB", 1, "on-demand", 2.39, "EU-SE-1"),
        ("runpod-secure", "H100-SXM-80GB", 8, "on-demand", 23.92, "US-KS-2"),
        ("verda", "H100-80GB", 1, "on-demand", 1.5, "FIN-01"),  # nothing names its form factor: it stays unsaid
    ]
    assert set(http.missing) == {"azure", "gcp", "nebius", "oci", "cloudrift"}


def test_gpuhunt_without_any_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "unset")
    with pytest.raises(Unavailable, match="gpuhunt"):
        sources.every()["gpuhunt"].fetch(fetcher("gpuhunt", f"file://{tmp_path}"))
