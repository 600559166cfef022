"""What moves bytes between GPUs: rates that collectives achieve, not those on the box."""

from dataclasses import dataclass

from perrun.errors import InvalidInput, MissingFact
from perrun.facts import tables
from perrun.terms import GPU
from perrun.units import MILLION

_BUILT_IN_FABRIC = ("SXM", "Superchip", "OAM")  # boards whose GPUs are always linked; others need a bridge
_PORT_BY_ARCHITECTURE = {"Ampere": "ib-200", "Volta": "ib-200", "CDNA2": "ib-200"}  # 8 ports a node: DGX A100, ...


@dataclass(frozen=True, slots=True)
class Link:
    """A way between GPUs.

    gb_s: what a ring collective of many bytes achieves per GPU and direction [GB/s], the bus bandwidth of
    nccl-tests; for a link between nodes, of one GPU's share of the node's ports, so a ring over whole nodes moves at
    gpus_per_node times it. latency_s: of one step of the ring [s]. measured: whether gb_s was measured on this link;
    otherwise it is the measured share of a sibling's one-way rate, as `source` says.
    """

    name: str
    gb_s: float
    latency_s: float
    measured: bool
    source: str


def _link(row: dict[str, str]) -> Link:
    return Link(
        row["name"],
        float(row["achieved_gb_s"]),
        float(row["latency_us"]) / MILLION,
        row["basis"] == "measured",
        row["source"],
    )


def _named(name: str) -> Link:
    for row in tables.read("links"):
        if row["name"] == name:
            return _link(row)
    raise MissingFact(f"links.csv has no {name!r}", expected=", ".join(row["name"] for row in tables.read("links")))


def has_fabric(gpu: GPU) -> bool:
    """Whether the GPUs of a node are linked by NVLink or its like without anybody buying a bridge."""
    return bool(gpu.nvlink_gb_s) and gpu.form_factor.startswith(_BUILT_IN_FABRIC)


def _fabric(gpu: GPU) -> Link:
    if not gpu.nvlink_gb_s:
        raise InvalidInput(f"{gpu.id} has no NVLink", expected="pcie")
    for row in tables.read("links"):
        if row["kind"] == "nvlink" and row["vendor"] == gpu.vendor and float(row["two_way_gb_s"]) == gpu.nvlink_gb_s:
            return _link(row)
    raise MissingFact(f"links.csv has no {gpu.vendor} link of {gpu.nvlink_gb_s:g} GB/s, which {gpu.id} has")


def _pcie(gpu: GPU) -> Link:
    words = gpu.pcie.split()
    if len(words) < 2:
        raise MissingFact(f"the PCIe generation or lanes of {gpu.id} are not known")
    return _named(f"pcie-{words[0]}-{words[1]}")


def link(gpu: GPU, interconnect: str | None) -> Link:
    """The link between the GPUs of one node; None: NVLink (or its like) where it is built in, else PCIe.

    Raises InvalidInput when the card has no such link, MissingFact when its figures are not known.
    """
    if interconnect is None:
        return _fabric(gpu) if has_fabric(gpu) else _pcie(gpu)
    if interconnect == "nvlink":
        return _fabric(gpu)
    if interconnect == "pcie":
        return _pcie(gpu)
    raise InvalidInput(f"interconnect {interconnect!r} does not link the GPUs of a node", expected="nvlink or pcie")


def node_link(interconnect: str | None, gpu: GPU) -> Link:
    """The link between nodes, per GPU; None: InfiniBand with the port that nodes of this GPU are built with.

    ib: one port per GPU, 200 Gb/s beside Ampere and older, 400 beside Hopper and later. ethernet: one 100 Gb/s port
    per node of 8. nvlink: the nodes of one NVLink domain (GB200 and GB300 NVL72).
    Raises InvalidInput for anything else.
    """
    if interconnect == "nvlink":
        return _fabric(gpu)
    if interconnect in (None, "ib"):
        return _named(_PORT_BY_ARCHITECTURE.get(gpu.architecture, "ib-400"))
    if interconnect == "ethernet":
        return _named("ethernet-100")
    raise InvalidInput(f"interconnect {interconnect!r} does not link nodes", expected="ib, ethernet or nvlink")
