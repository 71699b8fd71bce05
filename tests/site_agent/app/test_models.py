"""Models, sharing, merging, settings and the ledger: nothing leaves without its preview."""

import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.formats import file_digest, write_model
from site_agent.app.recordings import Recording
from site_agent.errors import StalePreviewError
from site_agent.jobs.folder import JobFolder
from site_agent.jobs.kinds import KINDS
from site_agent.pool import connection, profiles, trust
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.pool.sent import read_sent, sent_file
from site_agent.rounds.contract import site_rules
from site_agent.work import no_progress
from tests.aggregators.small_models import make_detector, make_predictor
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.live_pool import LivePool


@pytest.fixture
def app(tmp_path: Path, pool: LivePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApp]:
    """An app of site-a with three models; its jobs are done by `do`."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "h"))
    monkeypatch.setattr(JobFolder, "start_runner", lambda _: None)
    folder = tmp_path / "r" / "models"
    folder.mkdir(parents=True)
    for number in (1, 2):
        write_model(make_predictor(number), folder / f"mine{number}.dat")
    write_model(make_detector(3), folder / "face.svm")
    with running_app(tmp_path / "h", tmp_path / "r") as app_:
        joined = app_.post("/settings/join", endpoint=pool.url, secret=pool.tokens["site-a"])
        assert joined.status_code == 303, joined.text
        yield app_


def do(app: RunningApp, kind: str) -> dict[str, Any]:
    """Do the newest job of a kind here."""
    view = [view for view in app.lab.jobs.views() if view.job.kind == kind][-1]
    assert app.lab.jobs.claim(view.job.id)
    request = {**view.job.request, "id": view.job.id, "jobs": str(app.lab.jobs.place)}
    module, _, name = KINDS[kind].partition(":")
    function = getattr(import_module(module), name)
    result: dict[str, Any] = function(request, no_progress)
    app.lab.jobs.finish(view.job.id, "done", result=result)
    return result


def number_of(app: RunningApp, name: str) -> str:
    link = re.search(rf'/models/([0-9a-f]{{16}})">{re.escape(name)}<', app.get("/models").text)
    assert link is not None
    return link[1]


class Logging(httpx.HTTPTransport):
    """Keeps the content of every request that leaves."""

    bodies: list[bytes]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if body := request.read():
            self.bodies.append(body)
        request.stream = httpx.ByteStream(body)
        return super().handle_request(request)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents of all requests to pools."""
    bodies: list[bytes] = []

    def open_client(_endpoint: str, timeout: httpx.Timeout, **options: Any) -> httpx.Client:
        transport = Logging()
        transport.bodies = bodies
        return httpx.Client(transport=transport, timeout=timeout, **options)

    monkeypatch.setattr(connection, "open_http_client", open_client)
    return bodies


def shown(app: RunningApp, number: str, **fields: str) -> tuple[dict[str, str], bytes]:
    """Return the form of a preview, and the words that it shows."""
    page = app.get(f"/models/{number}/share", params=fields).text
    form = page.rpartition("<form")[2]
    sent = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', page[page.index("/send") :]))
    assert form
    raw = html.unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1])  # type: ignore[index]
    content = json.dumps(json.loads(raw), separators=(",", ":"), ensure_ascii=False)
    return {name: html.unescape(value) for name, value in sent.items()}, content.encode()


def test_exactly_the_previewed_bytes_leave(
    app: RunningApp, log: list[bytes], tmp_path: Path
) -> None:
    number = number_of(app, "mine1.dat")
    form, preview = shown(app, number, name="eyes-shared", description="Kinder, grüne Wand")
    assert log == [], "a preview asks, and sends nothing"
    assert app.post(f"/models/{number}/send", **form).status_code == 303
    assert log == []
    do(app, "upload")
    file = (tmp_path / "r" / "models" / "mine1.dat").read_bytes()
    sent = [body for body in log if not body.startswith(b'{"parts":')]
    assert sent == [preview, file]
    [item] = [item for item in read_sent() if item.is_item]
    assert (item.title, item.by, item.file_bytes) == ("Model", "app", len(file))
    assert item.content.encode() == preview
    assert item.digest == hashlib.sha256(preview).hexdigest() == form["preview"]
    assert sent_file().stat().st_mode & 0o077 == 0
    page = app.get("/sent").text
    assert "1 thing left this machine this month" in page
    assert "grüne Wand" in page


def test_stale_previews_are_refused(app: RunningApp, log: list[bytes], tmp_path: Path) -> None:
    number = number_of(app, "mine2.dat")
    form, _ = shown(app, number, name="eyes-stale")
    changed = app.post(f"/models/{number}/send", **form | {"description": "of P03"})
    assert changed.status_code == 409
    assert "look at it again" in changed.text
    assert app.post(f"/models/{number}/send", **form).status_code == 303
    file = tmp_path / "r" / "models" / "mine2.dat"
    write_model(make_predictor(9), file)
    with pytest.raises(StalePreviewError):
        do(app, "upload")
    assert log == []


def test_a_sent_model_is_withdrawn(app: RunningApp, pool: LivePool, log: list[bytes]) -> None:
    number = number_of(app, "face.svm")
    form, _ = shown(app, number, name="face-shared")
    app.post(f"/models/{number}/send", **form)
    do(app, "upload")
    log.clear()
    link = re.search(r"/sent/withdraw\?model=\w+", app.get("/sent").text)
    assert link is not None
    page = app.get(link[0]).text
    assert "Withdraw site-a/face-shared@1" in page
    assert "This cannot be undone" in page
    assert "tells 0 other labs" in page
    assert log == []
    address = {"address": "pool://site-a/face-shared@1"}
    assert app.post("/sent/withdraw/send", **address, reason="x").status_code == 409
    asked = app.post("/sent/withdraw/send", **address, reason="data-error", explanation="mixed up")
    assert asked.status_code == 303
    with PoolClient(pool.url, pool.tokens["site-b"]) as client:
        withdrawal = client.version("site-a/face-shared@1").withdrawal
    assert withdrawal is not None
    assert (withdrawal.reason, withdrawal.explanation) == ("data-error", "mixed up")
    assert len(log) == 1
    [newest, _] = [item for item in read_sent() if item.is_item]
    assert (newest.title, newest.by, newest.content) == ("Withdrawal", "app", log[0].decode())
    assert app.get("/sent/withdraw?model=").status_code == 404
    page = app.get("/sent").text
    assert "/sent/withdraw" not in page
    assert '<span class="badge">withdrawn' in page
    for page in (app.get("/models").text, app.get(f"/models/{number}").text):
        assert f"/models/{number}/share" not in page
        assert "Your lab has withdrawn it" in page


def test_words_that_name_a_person_or_place_are_doubted(app: RunningApp) -> None:
    number = number_of(app, "mine1.dat")
    page = app.get(f"/models/{number}/share", params={"name": "e", "description": "/home/ada/x"})
    assert "The words hold a path" in page.text


def test_models_are_downloaded_merged_and_deleted(
    app: RunningApp, pool: LivePool, tmp_path: Path
) -> None:
    other = tmp_path / "b.dat"
    write_model(make_predictor(7), other)
    with PoolClient(pool.url, pool.tokens["site-b"]) as client:
        address = client.upload(other, "site-b/eyes", terms=[{"code": "DUO:0000042"}]).version
    assert "site-b/eyes@1" in app.get("/models?where=pool").text
    assert app.post("/models/ask/download", address=address.address).status_code == 303
    assert do(app, "download")["digest"] == file_digest(other)
    names = ("site-b/eyes@1", "mine1.dat", "face.svm")
    theirs, mine, face = (number_of(app, name) for name in names)
    assert "do not fit together" in app.get(f"/models/merge?model={mine}&model={face}").text
    page = app.get(f"/models/merge?model={mine}&model={theirs}").text
    assert "They fit together" in page
    assert "DUO:0000042" in page, "terms are taken over"
    fields = {f"weight-{mine}": "1,5", "name": "ours"}
    bad = app.post("/models/merge/start", model=[mine, theirs], **fields | {"name": "../x"})
    assert bad.status_code == 422
    for weight in ("-1", "0", "nan", "1,5,5"):
        wrong = {**fields, f"weight-{mine}": weight}
        bad = app.post("/models/merge/start", model=[mine, theirs], **wrong)
        assert (bad.status_code, "a weight is n" in bad.text) == (422, True)
    assert app.post("/models/merge/start", model=[mine, theirs], **fields).status_code == 303
    again = app.post("/models/merge/start", model=[mine, theirs], **fields)
    assert "ours.dat is being made already" in again.text
    merged = do(app, "merge")["digest"]
    output = tmp_path / "r" / "models" / "ours.dat"
    recipe = json.loads(output.with_name("ours.dat.recipe.json").read_text())
    assert sorted(entry["weight"] for entry in recipe["inputs"]) == [1.0, 1.5]
    assert "merged here" in app.get("/models").text
    assert app.get(f"/models/{merged[:16]}").status_code == 200
    assert app.post("/models/ask/delete", model=merged[:16]).status_code == 303
    assert not output.exists()
    assert app.post("/models/ask/restore").status_code == 303
    assert file_digest(output) == merged
    assert output.with_name("ours.dat.recipe.json").exists()
    assert app.post("/models/ask/delete", model=merged[:16]).status_code == 303
    deleted = re.search(r'name="deleted" value="([^"]+)"', app.get("/models").text)
    assert deleted is not None
    assert app.post("/models/ask/restore", deleted="../models").status_code == 404
    assert app.post("/models/ask/restore", deleted=deleted[1]).status_code == 303
    assert file_digest(output) == merged
    assert app.post("/models/ask/restore").status_code == 404, "the bin is empty"
    assert app.post("/models/ask/delete", model=theirs).status_code == 303
    assert "site-b/eyes@1" not in app.get("/models").text


def test_a_model_withdrawn_upstream_is_named_with_its_recordings(
    app: RunningApp, pool: LivePool, tmp_path: Path
) -> None:
    other = tmp_path / "upstream.dat"
    write_model(make_predictor(11), other)
    with PoolClient(pool.url, pool.tokens["site-b"]) as client:
        version = client.upload(other, "site-b/upstream").version
        app.post("/models/ask/download", address=version.address)
        digest = do(app, "download")["digest"]
        theirs, mine = number_of(app, "site-b/upstream@1"), number_of(app, "mine1.dat")
        app.post("/models/merge/start", model=[mine, theirs], name="of-both")
        do(app, "merge")
        study = app.lab.studies.current()
        used = str(ModelCache().path_of(digest))
        study.write(
            Recording(session=f"s{number}", video=f"/v/P0{number}.mp4", landmarks=used)
            for number in (1, 2)
        )
        app.lab.watch.ask_pool()
        assert "was withdrawn" not in app.get("/models").text
        client.withdrawals.withdraw(version.address, "data-error", explanation="mixed up")
    app.lab.watch.ask_pool()
    page = app.get("/models").text
    assert "site-b/upstream@1 was withdrawn (data-error): mixed up" in html.unescape(page)
    assert "2 recordings of this study used it (P01.mp4, P02.mp4)" in page
    assert page.count('<span class="badge bad">withdrawn') == 2, "and what was merged from it"


def test_settings_are_those_of_the_command_line(app: RunningApp, pool: LivePool) -> None:
    host = profiles.host_of(pool.url)
    assert app.post("/settings/trust", site="site-b").status_code == 303
    assert trust.trusted_sites(host) == {"site-b"}
    assert app.post("/settings/trust", site="nobody").status_code == 422
    assert app.post("/settings/distrust", site="site-b").status_code == 303
    assert 'value="site-b"' in app.get("/settings?saved=1").text, "Undo"
    rules = {"min_faces": "9", "least_others": "3", "secure_only": "true"}
    assert app.post("/settings/rules", **rules).status_code == 303
    kept = site_rules(pool.url)
    assert (kept.min_faces, kept.least_others, kept.secure_only) == (9, 3, True)
    refused = app.post("/settings/rules", min_faces="0")
    assert refused.status_code == 422
    assert "min_faces is" in refused.text
    assert app.post("/settings/machine", slots="3").status_code == 303
    assert app.post("/settings/machine", slots="none").status_code == 422
    assert app.post("/settings/leave").status_code == 303
    assert profiles.load_profile().token == ""
    for text, problem in (
        ("nonsense", "holds no whole token or invitation"),
        (pool.tokens["site-a"], "fill in its address"),
        (f"{pool.url}/login?invitation=invite_{'x' * 30}", "choose your user name"),
    ):
        assert problem in app.post("/settings/join", secret=text).text
    sent = f"Dear colleague, the token is {pool.tokens['site-a']}\nfor {pool.url}/."
    assert app.post("/settings/join", secret=sent).status_code == 303
    assert app.post("/settings/leave").status_code == 303
    with PoolClient(pool.url, pool.admin_token) as admin:
        invited = admin.invitations.create("site-a", role="viewer").secret
    wrong = app.post("/settings/join", secret=invited, endpoint=pool.url, user="Ada L.")
    assert (wrong.status_code, invited in wrong.text) == (422, True)
    answer = app.post("/settings/join", secret=invited, endpoint=pool.url, user="ada")
    assert answer.status_code == 303
    page = app.client.get(f"{app.origin}{answer.headers['location']}").text
    assert f"You have joined {pool.url} as ada of site-a." in page
    newest = read_sent()[0]
    assert (newest.title, newest.by) == ("User name, to join a pool", "app")
    assert app.post("/settings/leave").status_code == 303
    wrong = app.post("/settings/join", endpoint=pool.url, secret="nonsense" * 4)
    assert wrong.status_code == 422
    assert "does not accept this token" in wrong.text
    assert "nonsense" not in wrong.text
    assert "nonsense" not in sent_file().read_text() if sent_file().exists() else True
    assert "Join a pool" in app.get(f"/models/{number_of(app, 'mine1.dat')}/share").text
