"""The two services of a split training: each kit says which of them it is for."""

from collections.abc import Callable
from pathlib import Path

from site_agent.split.aggregator import run_aggregator
from site_agent.split.kits import read_kit
from site_agent.split.main_server_process import run_main_server


def run_service(folder: Path, *, note: Callable[[str], None], on_ready: Callable[[], None]) -> None:
    """Run the main server or the part aggregator of a kit until it is interrupted."""
    kit = read_kit(folder)
    if kit.role == "server":
        run_main_server(kit, note=note, on_ready=on_ready)
    else:
        run_aggregator(kit, on_ready=on_ready)
