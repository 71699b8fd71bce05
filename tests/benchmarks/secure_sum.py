"""Bytes at the sockets of a lab in a secure sum and in plain federated averaging, in one run.

    python -m tests.benchmarks.secure_sum [--parameters 1827076] [--sites 5] [--servers 2,3,5]

Each number of servers gets a pool of its own. Plain: every lab sends its update to a round of
fedavg and downloads the result. Secure: the labs verify by the servers' signatures, and again by
all openings. All bytes of HTTP count, those of asking whether anything is new, too; the labs and
servers are processes, which ask four times a second.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict, TensorInfo
from pool_server.settings import PoolSettings
from site_agent import PoolClient
from site_agent.pool.cache import ModelCache
from site_agent.pool.resources.rounds import Rounds
from site_agent.rounds.finishing import finish_round
from tests.benchmarks.counting_relay import CountingRelay
from tests.benchmarks.secure_trial import TrialSettings, run_trial, trial_vector
from tests.pool_server.pool_driver import running_pool

SERVE = (sys.executable, "-m", "cli", "secure", "serve")


@dataclass(frozen=True)
class PartyTraffic:
    """Traffic of one lab with the pool, and the time from its first request to its end."""

    name: str
    sent_bytes: int
    received_bytes: int
    seconds: float


def network_of(values: np.ndarray) -> StateDict:
    return StateDict({"vector": values}, {"vector": TensorInfo("F32", values.shape)})


def plain_round(
    folder: Path, url: str, admin_token: str, sites: int, parameters: int
) -> list[PartyTraffic]:
    """Hold one round of fedavg; return each lab's traffic with the pool."""
    names = [f"plain-{number}" for number in range(sites)]
    base = folder / "base.safetensors"
    write_model(network_of(np.zeros(parameters, dtype=np.float32)), base)
    with ExitStack() as stack:
        admin = stack.enter_context(PoolClient(url, admin_token))
        tokens = {}
        for name in names:
            admin.sites.create(name)
            tokens[name] = admin.tokens.create(name, "benchmark").secret
        starter = stack.enter_context(PoolClient(url, tokens[names[0]]))
        starter.upload(base, f"{names[0]}/base")
        deadline = datetime.now(UTC) + timedelta(hours=1)
        held = starter.rounds.start(f"{names[0]}/base", names, deadline, method="fedavg")
        relays = [stack.enter_context(CountingRelay(url)) for _ in names]
        clients = [
            stack.enter_context(
                PoolClient(relay.url, tokens[name], cache=ModelCache(folder / f"cache-{name}"))
            )
            for relay, name in zip(relays, names, strict=True)
        ]
        started_s = time.monotonic()
        for number, (client, name) in enumerate(zip(clients, names, strict=True)):
            path = folder / f"{name}.contribution"
            values, weight = trial_vector(number, parameters)
            options = {name: held.options[name] for name in LocalTraining.model_fields}
            made = NetworkContribution(
                network_of(values), "differences", weight, file_digest(base), options
            )
            write_network_contribution(made, path)
            rounds: Rounds = client.rounds
            rounds.send_contribution(held.round_id, path, name)
        result = finish_round(clients[0], held.round_id, upload_to=f"{names[0]}/result").version
        for client in clients:
            client.download(result.address)
        seconds = time.monotonic() - started_s
    return [
        PartyTraffic(name, relay.sent_bytes, relay.received_bytes, seconds)
        for name, relay in zip(names, relays, strict=True)
    ]


def summed_round(
    folder: Path, url: str, admin_token: str, settings: TrialSettings
) -> list[PartyTraffic]:
    """Hold one secure sum; return each lab's traffic with the pool."""
    with ExitStack() as stack:
        relays: dict[str, CountingRelay] = {}

        def endpoint_of(name: str) -> str:
            relays[name] = stack.enter_context(CountingRelay(url))
            return relays[name].url

        outcome = run_trial(
            folder, url, admin_token, settings, server_command=SERVE, endpoint_of=endpoint_of
        )
    assert outcome.integer_sum_is_exact
    assert outcome.same_bytes
    return [
        PartyTraffic(name, relays[name].sent_bytes, relays[name].received_bytes, seconds)
        for name, seconds in outcome.lab_seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=1_827_076)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--servers", default="2,3,5")
    chosen = parser.parse_args()
    fp32_bytes = 4 * chosen.parameters
    print(f"{chosen.sites} labs, {chosen.parameters:,} parameters; the most of any lab")
    print(f"{'':20} {'up / fp32':>10} {'down / fp32':>12} {'up+down / plain':>16} {'s':>7}")
    for servers in map(int, chosen.servers.split(",")):
        plain_bytes = 0
        for mode in ("plain", "servers", "full"):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                settings = PoolSettings(
                    data_folder=folder / "pool", port=0, default_rights="download,merge"
                )
                with running_pool(settings) as (url, token):
                    assert token is not None
                    if mode == "plain":
                        labs = plain_round(folder, url, token, chosen.sites, chosen.parameters)
                        plain_bytes = max(lab.sent_bytes + lab.received_bytes for lab in labs)
                    else:
                        trial = TrialSettings(
                            servers, chosen.sites, chosen.parameters, full=mode == "full"
                        )
                        labs = summed_round(folder, url, token, trial)
            up = max(lab.sent_bytes for lab in labs)
            down = max(lab.received_bytes for lab in labs)
            both = max(lab.sent_bytes + lab.received_bytes for lab in labs)
            seconds = max(lab.seconds for lab in labs)
            print(
                f"{servers} servers, {mode:9} {up / fp32_bytes:10.3f} {down / fp32_bytes:12.3f} "
                f"{both / plain_bytes:16.3f} {seconds:7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
