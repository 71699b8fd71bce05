"""The sites' halves of the methods of rounds of networks; methods without one train plainly."""

from aggregators.methods.registry import find_method
from site_agent.federated.halves import personal_numbers
from site_agent.federated.halves.contract import SiteHalf
from site_agent.federated.halves.fedpac import FedPacHalf
from site_agent.federated.halves.fedprox import FedProxHalf

HALVES: dict[str, type[SiteHalf]] = {
    "fedprox": FedProxHalf,
    "local": personal_numbers.LocalHalf,
    "fedper": personal_numbers.FedPerHalf,
    "fedpac": FedPacHalf,
    "fedselect": personal_numbers.FedSelectHalf,
    "fedcpf": personal_numbers.FedCpfHalf,
    "cpf-random": personal_numbers.CpfRandomHalf,
}
"""By the name of the method."""


def find_half(method: str) -> type[SiteHalf]:
    """Return a site's half of a method."""
    half = HALVES.get(method, SiteHalf)
    assert half.keeps_part == find_method(method).personal, method
    return half
