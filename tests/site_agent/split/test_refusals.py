"""Services refuse strangers and wrong bodies; sites answer attacks of client parts and servers."""

import json
import resource
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from aggregators.formats import encode_model
from aggregators.methods.networks.round_files import contribution_as_network
from aggregators.methods.round_options import LocalTraining
from aggregators.models import Float32, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.errors import (
    ConflictError,
    ContributionWithheldError,
    FederationError,
    InvalidInputError,
    TrainingFailedError,
)
from site_agent.live.connection import ServiceConnection
from site_agent.live.kits import service_name
from site_agent.networks.modules import new_network
from site_agent.split.frozen import smash
from site_agent.split.kits import SplitKit, draw_client_part, provision, read_kit
from site_agent.split.messages import body_shapes, encode_arrays
from site_agent.split.part_checks import (
    audit_client_part,
    distance,
    require_known_origin,
    require_near,
    require_safe_part,
)
from site_agent.split.parts import join_parts, split_network, to_part_module
from site_agent.split.plan import CUTS, SplitPlan, find_cut
from site_agent.split.rounds_folder import Taken
from site_agent.split.training import ServerHalf, StepAnswer, contribution_of, train_client
from site_agent.training.gaze.loop import to_tensors
from tests.site_agent.federated.small_sites import samples_at, small_sites
from tests.site_agent.split.live_split import LiveSplit, live_split, make_kits, unguarded

PLAN = SplitPlan(rounds=2)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSplit]:
    with live_split(tmp_path_factory.mktemp("live"), PLAN) as running:
        yield running


def ask(
    kit: SplitKit,
    path: str,
    body: bytes = b"",
    *,
    context: ssl.SSLContext | None = None,
    service: str = "server",
    method: str = "POST",
    **headers: str,
) -> httpx.Response:
    """Send one request, without trying again."""
    with httpx.Client(
        verify=context or kit.client_context(), trust_env=False, timeout=540
    ) as client:
        return client.request(
            method, f"https://{kit.addresses[service]}{path}", content=body, headers=headers,
            extensions={"sni_hostname": service_name(service)},
        )  # fmt: skip


def step_of(rows: int = 2, **changes: Any) -> bytes:
    shapes = body_shapes(PLAN)["step"].entries
    arrays = {name: np.zeros((rows, *shape), np.float32) for name, shape in shapes.items()}
    return encode_arrays({**arrays, **changes})


def begin(kit: SplitKit, attempt: int) -> str:
    path = f"/rounds/1/{attempt}"
    assert ask(kit, f"{path}/begin", b'{"samples": 16}').status_code == 200
    return path


def test_nobody_without_a_certificate_of_the_authority_is_heard(
    live: LiveSplit, tmp_path: Path
) -> None:
    kit = live.kits["site-0"]
    stranger = make_kits(tmp_path / "other", PLAN)["site-0"]
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(kit.folder / "authority.pem")
    foreign = stranger.client_context()
    foreign.load_verify_locations(kit.folder / "authority.pem")
    for context in (bare, foreign):
        with pytest.raises(httpx.TransportError):
            ask(kit, "/status", method="GET", context=context)
    # Nor does a client talk to a service of another authority, or to the wrong one.
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(kit, "/status", method="GET", context=stranger.client_context())
    swapped = replace(kit, addresses={"server": kit.addresses["aggregator"]})
    with (
        ServiceConnection(swapped, "server", patience_s=0) as connection,
        pytest.raises(FederationError, match=r"does not answer: .*Hostname mismatch"),
    ):
        connection.get_json("/status")


def test_each_role_may_do_its_own_work_only(live: LiveSplit) -> None:
    kit = live.kits["site-0"]
    # A site may not close rounds, and the main server may not train.
    body = json.dumps({"roster": {}}).encode()
    assert ask(kit, "/rounds/1/close", body, service="aggregator").json()["code"] == "role"
    assert ask(kit, "/stop").json()["code"] == "role"


def test_a_step_counts_once(live: LiveSplit) -> None:
    kit = live.kits["site-0"]
    path = begin(kit, 1)
    draw = np.random.default_rng(0)
    first = step_of(smashed=draw.normal(size=(2, 20, 16, 28)))
    answers = [ask(kit, f"{path}/step/0", first) for _ in range(2)]
    assert answers[0].content == answers[1].content
    codes = [
        ask(kit, f"{path}/step/0", step_of()).json()["code"],
        ask(kit, f"{path}/step/2", step_of()).json()["code"],
        ask(kit, "/rounds/1/7/step/1", step_of()).json()["code"],
        ask(kit, "/rounds/2/1/step/1", step_of()).json()["code"],
        ask(kit, f"{path}/forward/1", step_of()).json()["code"],
    ]
    assert codes == ["step_changed", "step", "attempt", "round", "step"]
    assert ask(kit, f"{path}/step/1", first).content != answers[0].content
    # A new attempt begins with the part of the round, an old one cannot go on.
    again = begin(kit, 2)
    assert ask(kit, f"{again}/step/0", first).content == answers[0].content
    assert ask(kit, f"{path}/step/2", first).json()["code"] == "attempt"
    assert ask(kit, f"{path}/begin", b'{"samples": 16}').json()["code"] == "attempt"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (step_of(smashed=np.full((2, 20, 16, 28), np.nan)), "smashed: found infinities or NaN"),
        (step_of(gaze=np.full((2, 2), np.inf)), "gaze: found infinities or NaN"),
        (step_of(smashed=np.zeros((2, 20, 16, 29))), "expected F32 [2, 20, 16, 28]"),
        (step_of(head=np.zeros((3, 2))), "expected 1 to 9, the same number in each entry"),
        (step_of(rows=0), "found 0 samples"),
        (encode_arrays({"smashed": np.zeros((2, 20, 16, 28))}), "found entries smashed, expected"),
        (b"not safetensors at all", "the body is no safetensors"),
        (b"", "the body is no safetensors"),
    ],
)
def test_wrong_bodies_are_422(live: LiveSplit, body: bytes, text: str) -> None:
    kit = live.kits["site-1"]
    number = ask(kit, "/status", method="GET").json()["attempt"] + 1
    path = begin(kit, number)
    answer = ask(kit, f"{path}/step/0", body)
    assert answer.status_code == 422
    assert text in answer.json()["message"], answer.text


def test_a_body_that_announces_too_much_is_not_read(live: LiveSplit) -> None:
    kit = live.kits["site-0"]
    most = body_shapes(PLAN)["step"].most_bytes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host, _, port = kit.addresses["server"].rpartition(":")
    context = kit.client_context()
    for length in (10 * most, 10**15):
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=service_name("server")) as sock,
        ):
            head = "POST /rounds/1/1/step/0 HTTP/1.1\r\nHost: x\r\n"
            sock.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
            # It answers before any of the body was sent, and ends the connection.
            answer = b""
            while piece := sock.recv(65_536):
                answer += piece
        assert b"413" in answer.split(b"\r\n")[0]
        assert b"too_large" in answer
    chunked = ask(kit, "/rounds/1/1/step/0", iter([b"x"] * 3))  # type: ignore[arg-type]
    assert chunked.json()["code"] == "size_unknown"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def contribution(live: LiveSplit, value: float, *, base: str = "") -> bytes:
    model = live.aggregator.rounds.model
    tensors = {
        name: np.full(info.shape, value, np.float32) for name, info in model.network.infos.items()
    }
    made = contribution_of(
        StateDict(tensors, dict(model.network.infos)), 16, base or model.digest, PLAN
    )
    return encode_model(contribution_as_network(made), "safetensors")


def test_the_aggregator_takes_parts_of_the_round_only_and_closes_it_once(tmp_path: Path) -> None:
    with live_split(tmp_path, PLAN) as live:
        kit = live.kits["site-0"]

        def put(site: str, body: bytes, attempt: int = 1) -> httpx.Response:
            path = f"/rounds/1/{attempt}/part"
            return ask(live.kits[site], path, body, service="aggregator", method="PUT")

        for body, text in (
            (contribution(live, np.nan), "infinities or NaN"),
            (contribution(live, 1e7), "1e"),
            (contribution(live, 0.01, base="ab" * 32), "was made from another base"),
            (contribution(live, 0.0), ""),
            (b"junk", ""),
        ):
            answer = put("site-0", body)
            assert answer.status_code == 422, answer.text
            assert text in answer.text
        huge = ask(
            kit, "/rounds/1/1/part", b"x" * (live.aggregator.most_bytes + 1),
            service="aggregator", method="PUT",
        )  # fmt: skip
        assert huge.status_code == 413
        for number in range(3):
            assert put(f"site-{number}", contribution(live, 0.01 * number + 0.01)).is_success
        roster = {f"site-{number}": Taken(1, 16) for number in range(3)}
        two = {site: roster[site] for site in ("site-0", "site-1")}
        with pytest.raises(Exception, match="found 2 sites, expected at least 3"):
            live.aggregator.close(1, two)
        other = {**roster, "site-2": Taken(2, 16)}
        with pytest.raises(Exception, match=r"no contribution of site-2"):
            live.aggregator.close(1, other)
        digest = live.aggregator.close(1, roster)
        assert live.aggregator.close(1, roster) == digest
        with pytest.raises(ConflictError, match="cannot be opened for"):
            live.aggregator.close(1, {**roster, "site-0": Taken(2, 16)})


@pytest.mark.parametrize("architecture", CUTS)
def test_cameras_at_the_cut_are_refused_and_honest_parts_pass(architecture: str) -> None:
    for cut in CUTS[architecture]:
        part = split_network(new_network(architecture, 3), cut).client
        assert audit_client_part(part, samples_at(0), cut) == []
    cut = find_cut("gaze-lenet", "pool1")
    part = split_network(new_network("gaze-lenet", 3), cut).client
    camera = dict(part.tensors)
    weight = np.zeros_like(camera["conv1.weight"])
    weight[0, 0, 2, 2] = 1
    camera["conv1.weight"] = weight
    made = StateDict(camera, part.infos, part.metadata)
    with pytest.raises(ContributionWithheldError, match="1 of the 20 filters of conv1 copy"):
        require_safe_part("1 of 2", made, samples_at(0), PLAN)
    loud = {name: 1e6 * values for name, values in part.tensors.items()}
    objections = audit_client_part(StateDict(loud, part.infos, part.metadata), samples_at(0), cut)
    assert "it answers with" in objections[0]


def test_a_client_refuses_a_part_that_the_services_do_not_agree_on(tmp_path: Path) -> None:
    with live_split(tmp_path, PLAN) as live:
        forged = split_network(new_network("gaze-lenet", 9), PLAN.found_cut).client
        start = live.kits["aggregator"].folder / "start.safetensors"
        start.write_bytes(encode_model(forged))
        with (
            live.client("site-0", small_sites()["site-0"]) as client,
            pytest.raises(FederationError, match="one of the services is wrong, or lies"),
        ):
            client.run()


LONG_PLAN = SplitPlan(training=LocalTraining(learning_rate=0.01, epochs=4))

CUT = find_cut("gaze-lenet", "pool1")


def code_of_pictures() -> StateDict:
    """Return a client part with filters of two weights: the sums of neighbouring pixels."""
    part = draw_client_part(LONG_PLAN, 3)
    weight = np.zeros_like(part.tensors["conv1.weight"])
    for number in range(len(weight)):
        row, column = divmod(number, 4)
        weight[number, 0, row, column : column + 2] = 0.7
    return StateDict({**part.tensors, "conv1.weight": weight}, part.infos, part.metadata)


def test_a_code_of_the_pictures_passes_the_audit_but_not_the_look_at_its_origin(
    tmp_path: Path,
) -> None:
    code = code_of_pictures()
    assert audit_client_part(code, samples_at(0), CUT) == []
    server = split_network(new_network("gaze-lenet", 0), CUT).server
    server = StateDict(
        server.tensors,
        server.infos,
        {**code.metadata, "architecture": server.metadata["architecture"]},
    )
    addresses = {"server": "localhost:1", "aggregator": "localhost:2"}
    provision(
        tmp_path / "made", LONG_PLAN, join_parts(code, server), addresses=addresses,
        sites=list(small_sites()), client_seed=3,
    )  # fmt: skip
    made = read_kit(tmp_path / "made" / "site-0")
    with pytest.raises(ContributionWithheldError, match="was not drawn from a seed"):
        require_known_origin(made, "")
    with pytest.raises(ContributionWithheldError, match="is not the one of seed 3, drawn by torch"):
        require_known_origin(replace(made, client_seed=3), "")
    require_known_origin(made, made.first_client)


def test_sites_repeat_the_first_part_and_the_server_cannot(tmp_path: Path) -> None:
    kits = make_kits(tmp_path, LONG_PLAN, client_seed=None)
    seeds = {kits[site].client_seed for site in small_sites()}
    assert len(seeds) == 1
    assert None not in seeds
    assert kits["server"].client_seed is None
    require_known_origin(kits["site-0"], "")


def test_kits_of_earlier_versions_are_read_or_refused_by_name(tmp_path: Path) -> None:
    make_kits(tmp_path, LONG_PLAN)
    file = tmp_path / "site-0" / "kit.json"
    facts = json.loads(file.read_text())

    def read(**changes: str) -> SplitKit:
        file.write_text(json.dumps({**facts, "plan": {**facts["plan"], **changes}}))
        return read_kit(file.parent)

    assert read(noise="laplace").plan == LONG_PLAN
    with pytest.raises(InvalidInputError, match="gaussian noise, expected laplace"):
        read(noise="gaussian")
    for variant in ("v2", "frozen-client"):
        with pytest.raises(InvalidInputError, match=f"{variant}: processes hold v1"):
            read(variant=variant)


def test_a_part_that_the_aggregator_swaps_is_refused() -> None:
    part = draw_client_part(LONG_PLAN, 3)
    swapped = code_of_pictures()
    for size in (0.01, 0.3, 1.0):
        tensors = {name: size * values for name, values in swapped.tensors.items()}
        with pytest.raises(ContributionWithheldError, match="of its size away from the last"):
            require_near("2 of 5", StateDict(tensors, part.infos, part.metadata), part, CUT)
    near = {name: 1.1 * values for name, values in part.tensors.items()}
    require_near("2 of 5", StateDict(near, part.infos, part.metadata), part, CUT)


class Hijacker:
    """A main server that trains the client part to be a code of the pictures.

    It knows the pictures already: one that has to guess them gets less.

    `pull`: Size of its gradients times that of the smashed data.
    """

    def __init__(self, samples: GazeSamples, pull: float) -> None:
        module = to_part_module(code_of_pictures(), CUT, "client")
        data = to_tensors(samples)
        with torch.no_grad():
            self._aim = module.run_stages(CUT.front_stages(module.stages), data.patches, data.head)
        self._gaze, self._pull = data.gaze, pull

    def step(self, number: int, smashed: Float32, head: Float32, gaze: Float32) -> StepAnswer:
        which = torch.cdist(torch.from_numpy(gaze), self._gaze).argmin(dim=1)
        gradient = smashed - self._aim[which].numpy()
        size = float(np.linalg.norm(gradient)) * float(np.linalg.norm(smashed))
        return StepAnswer((self._pull / size * gradient).astype(np.float32), 0.1)

    forward = backward = None  # type: ignore[assignment]


@pytest.mark.parametrize(("pull", "word"), [(300.0, "pulls by 300"), (40.0, "has moved the part")])
def test_a_server_with_another_aim_is_left(pull: float, word: str) -> None:
    """Feature-space hijacking: without bounds the part ends as the server likes."""
    samples, part = samples_at(0), draw_client_part(LONG_PLAN, 3)
    plan = LONG_PLAN.model_copy(update={"optimiser": "adam"})
    hijacker = Hijacker(samples, pull)
    long = plan.model_copy(update={"training": LocalTraining(learning_rate=0.01, epochs=40)})
    with unguarded():
        made = train_client(part, samples, long, hijacker, site="a", round_number=1)
    end = {name: part.tensors[name] + made.differences.tensors[name] for name in part.infos}
    aim = code_of_pictures().tensors
    assert distance(end, aim, CUT) < 0.3
    assert distance(part.tensors, aim, CUT) > 1
    with pytest.raises(TrainingFailedError, match=f"{word}.*serves another aim than your gaze"):
        train_client(part, samples, long, hijacker, site="a", round_number=1)


class Observed(ServerHalf):
    """A main server of cut `u` that remembers the last gradients by its features."""

    gradients: Float32

    def backward(self, number: int, gradient: Float32) -> Float32:
        self.gradients = gradient
        return super().backward(number, gradient)


def test_the_server_of_cut_u_computes_the_gaze_from_its_own_numbers() -> None:
    """No label is sent, but gradients have four values: sums of two of them are the last layer."""
    training = LocalTraining(learning_rate=0.02, learning_rate_decay=0.2, batch_size=16)
    plan = SplitPlan(cut="u", rounds=5, training=training)
    samples = render_person(RenderSettings(persons=1, frames_per_person=100, seed=5), 0)
    parts = split_network(new_network("gaze-lenet", 1), plan.found_cut)
    client, server = parts.client, parts.server
    for number in range(1, plan.rounds + 1):
        observed = Observed(server, plan, number)
        made = train_client(client, samples, plan, observed, site="a", round_number=number)
        changed = {
            name: client.tensors[name] + made.differences.tensors[name] for name in client.infos
        }
        client, server = StateDict(changed, client.infos, client.metadata), observed.trained()
    one = observed.gradients[0]
    other = min(observed.gradients, key=lambda row: abs(float(row @ one)))
    smashed = smash(client, samples, plan, lambda data: data).smashed
    seen = observed.forward(0, smashed) @ np.stack([one + other, one - other], axis=1)
    correlations = np.abs(np.corrcoef(seen.T, samples.gaze.T)[:2, 2:])
    yaw_first, pitch_first = correlations.diagonal().min(), correlations[::-1].diagonal().min()
    assert max(yaw_first, pitch_first) > 0.7
