"""Network files."""

from pathlib import Path

from aggregators.errors import AggregatorError
from aggregators.formats import read_model
from aggregators.models import StateDict
from site_agent.errors import InvalidInputError


def read_network(path: Path | str) -> StateDict:
    """Read a network file."""
    path = Path(path)
    try:
        network = read_model(path)
    except AggregatorError as error:
        raise InvalidInputError(str(error)) from error
    if not isinstance(network, StateDict):
        raise InvalidInputError(f"{path}: found no network; expected a .safetensors file")
    return network
