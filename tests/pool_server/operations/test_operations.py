"""Backup, restore, garbage and checking: on both shapes, and from one shape to the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.formats import encode_model
from pool_server.app import create_first_admin
from pool_server.errors import BackupUnusableError, StartError
from pool_server.operations.backup import (
    alone_in,
    blob_path,
    check_snapshot,
    drop_snapshots,
    list_snapshots,
    make_backup,
)
from pool_server.operations.maintenance import (
    check_pool,
    collect_garbage,
    login_link,
    open_pool_offline,
)
from pool_server.operations.restore import restore_snapshot
from pool_server.settings import PoolSettings
from tests.aggregators.small_models import make_predictor
from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pages.browser import Browser
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    error_of,
    open_client,
    running_pool,
    send_parts,
    upload,
)
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.swift_server import S3Server
from tests.pool_server.transfers.test_recipes import recipe_for

CONTENT = network_bytes(50_000, seed=7)  # several parts
API = "/api/v1"
ASKED = (
    "/models?limit=200&state=any",
    "/models/ops-a/gaze/versions/1/lineage",
    "/sites",
    "/tokens",
    "/models/ops-a/gaze",
)


@pytest.fixture(scope="module")
def filled(open_pool: OpenPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    """A pool of this module's own; its tests go from harmless to destructive."""
    with open_pool(tmp_path_factory.mktemp("operations")) as pool:
        member = pool.member("ops-a")
        gaze = upload(member, "ops-a/gaze", CONTENT, labels={"population": "infant"})
        face = upload(member, "ops-a/face", bytes(encode_model(make_predictor(3))))
        merged = network_bytes(11)
        recipe = recipe_for(merged, gaze["digest"])
        upload(pool.member("ops-b"), "ops-b/merged", merged, recipe=recipe)
        assert face["version"] == 1
        yield pool


def answers_of(client: httpx.Client) -> list[Any]:
    answers = []
    for path in ASKED:
        answer = client.get(f"{API}{path}")
        assert answer.status_code == 200, answer.text
        answers.append(without_use(answer.json()))
    return answers


def audit_of(admin: httpx.Client) -> list[dict[str, Any]]:
    return admin.get(f"{API}/audit?limit=200").json()["items"]


def without_use(document: Any) -> Any:
    """Leave out when tokens were last used."""
    if isinstance(document, dict):
        return {k: without_use(v) for k, v in document.items() if k != "last_used_at"}
    return [without_use(item) for item in document] if isinstance(document, list) else document


@pytest.fixture
def other_shape(filled: PoolDriver, request: pytest.FixtureRequest, tmp_path: Path) -> PoolSettings:
    """Settings of an empty pool of the other shape than `filled`."""
    folder = tmp_path / "other"
    folder.mkdir()
    if filled.settings.uses_postgresql:
        return PoolSettings(data_folder=folder, port=0)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    swift: S3Server = request.getfixturevalue("swift")
    bucket = swift.make_bucket("restored")
    return PoolSettings(
        data_folder=folder,
        port=0,
        database_url=postgres.make_pool_database(),
        **swift.pool_settings(bucket),
    )


@pytest.mark.both_shapes(slow=True)
def test_a_pool_moves_to_the_other_shape(
    filled: PoolDriver, other_shape: PoolSettings, tmp_path: Path
) -> None:
    with open_pool_offline(filled.settings) as pool:
        made = make_backup(pool, tmp_path / "backup")
    assert made.copied_files == len(made.snapshot.files)
    assert check_snapshot(made.snapshot) == []
    restored = restore_snapshot(other_shape, made.snapshot)
    assert (restored.rows, restored.files) == (made.snapshot.rows, len(made.snapshot.files))
    before, audit = answers_of(filled.admin), audit_of(filled.admin)
    with (
        running_pool(other_shape) as (url, none),
        open_client(url, filled.admin_secret) as admin,
        open_client(url, filled.secret("ops-a", "contributor")) as member,
    ):
        assert none is None, "no second first admin"
        assert answers_of(admin) == before
        [told, *rest] = audit_of(admin)
        assert rest == audit
        assert (told["actor"], told["action"]) == ("admin/command-line", "pool.restore")
        assert told["details"]["snapshot"] == made.snapshot.name
        assert member.get(f"{API}/models/ops-a/gaze/versions/1/content").content == CONTENT
        # Rows are counted on from those that came back.
        assert upload(member, "ops-a/gaze")["version"] == 2
        assert upload(member, "ops-a/new")["version"] == 1
    with open_pool_offline(other_shape) as pool:
        assert check_pool(pool).is_sound


def test_a_second_backup_copies_only_new_files(filled: PoolDriver, tmp_path: Path) -> None:
    with open_pool_offline(filled.settings) as pool:
        first = make_backup(pool, tmp_path / "backup")
        assert make_backup(pool, tmp_path / "backup").copied_files == 0
        upload(filled.member("ops-a"), "ops-a/gaze")
        third = make_backup(pool, tmp_path / "backup")
    assert third.copied_files == 1
    names = [snapshot.name for snapshot in list_snapshots(tmp_path / "backup")]
    assert names == sorted(names)
    assert (len(names), names[0], names[-1]) == (3, first.snapshot.name, third.snapshot.name)


def test_a_folder_keeps_the_snapshots_of_one_pool(filled: PoolDriver, tmp_path: Path) -> None:
    with open_pool_offline(filled.settings) as pool:
        kept = make_backup(pool, tmp_path / "backup").snapshot
    begun = PoolSettings(data_folder=tmp_path / "begun", port=0)
    begun.data_folder.mkdir()
    create_first_admin(begun)
    with (
        open_pool_offline(begun) as pool,
        pytest.raises(BackupUnusableError, match="snapshots of another pool"),
    ):
        make_backup(pool, tmp_path / "backup")
    again = PoolSettings(data_folder=tmp_path / "again", port=0)
    again.data_folder.mkdir()
    restore_snapshot(again, kept)
    with open_pool_offline(again) as pool:
        make_backup(pool, tmp_path / "backup")
    assert len(list((tmp_path / "backup" / "snapshots").iterdir())) == 2


def test_a_backup_is_for_its_owner_only_and_lets_nobody_in(
    filled: PoolDriver, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    target.mkdir(mode=0o755)
    browser = Browser(filled).log_in(filled.secret("ops-a", "contributor"))
    assert browser.get("/account").status_code == 200
    with open_pool_offline(filled.settings) as pool:
        login_link(filled.settings, filled.url, filled.admin_secret)
        snapshot = make_backup(pool, target).snapshot
    modes = {path: path.stat().st_mode & 0o077 for path in target.rglob("*")}
    assert modes
    assert {path for path, mode in modes.items() if mode} == set()
    names = {table.name for table in snapshot.tables}
    assert "tokens" in names
    assert not names & {"browser_sessions", "login_links"}


def test_the_oldest_snapshots_go_with_the_files_that_only_they_had(
    filled: PoolDriver, tmp_path: Path
) -> None:
    member, target = filled.member("ops-a"), tmp_path / "backup"
    passing = upload(member, "ops-a/passing")["digest"]
    with open_pool_offline(filled.settings) as pool:
        oldest = make_backup(pool, target).snapshot
        assert member.delete(f"{API}/models/ops-a/passing/versions/1").is_success
        later = [make_backup(pool, target).snapshot for _ in range(3)]
        place = blob_path(target / "blobs", passing)
        # The remains of an interrupted backup.
        place.with_name(f"{passing}.ab12.tmp").write_bytes(b"x")
        assert drop_snapshots(target, keep=4).files == 1, "the half copy"
        assert place.exists()
        dropped = drop_snapshots(target, keep=2)
        with alone_in(target):
            for act in (lambda: make_backup(pool, target), lambda: drop_snapshots(target, keep=1)):
                with pytest.raises(BackupUnusableError, match="under way"):
                    act()
        collect_garbage(pool, remove=True)
    assert dropped.snapshots == (oldest.name, later[0].name)
    assert (dropped.files, dropped.size_bytes) == (1, oldest.files[passing])
    assert not place.exists()
    left = list_snapshots(target)
    assert [snapshot.name for snapshot in left] == [snapshot.name for snapshot in later[1:]]
    assert [check_snapshot(snapshot) for snapshot in left] == [[], []]


def test_a_damaged_backup_is_not_restored(filled: PoolDriver, tmp_path: Path) -> None:
    with open_pool_offline(filled.settings) as pool:
        snapshot = make_backup(pool, tmp_path / "backup").snapshot
    target = PoolSettings(data_folder=tmp_path / "target", port=0)
    target.data_folder.mkdir()
    blob = blob_path(tmp_path / "backup" / "blobs", sha256(CONTENT))
    blob.write_bytes(CONTENT[:-1] + b"?")
    assert [text.split()[1] for text in check_snapshot(snapshot)] == [sha256(CONTENT)]
    with pytest.raises(BackupUnusableError, match="damaged"):
        restore_snapshot(target, snapshot)
    assert not target.database_file.exists() or b"ops-a" not in target.database_file.read_bytes()
    blob.write_bytes(CONTENT)
    again = restore_snapshot(target, snapshot)
    assert again.files == len(snapshot.files), "the same call goes on"
    with pytest.raises(StartError):
        restore_snapshot(target, snapshot)
    with pytest.raises(BackupUnusableError, match="no whole snapshot"):
        list_snapshots(tmp_path)


def test_garbage_is_every_file_without_a_record(filled: PoolDriver) -> None:
    member = filled.member("ops-a")
    doomed = upload(member, "ops-a/doomed")
    again = network_bytes()
    upload(member, "ops-a/again", again)
    with open_pool_offline(filled.settings) as pool:
        assert collect_garbage(pool, remove=True).digests == ()
        for name in ("doomed", "again"):
            gone = member.delete(f"{API}/models/ops-a/{name}/versions/1")
            assert gone.is_success, gone.text
        # One of the two is on its way in again, all its parts there.
        opened = announce(member, "ops-a/again-2", again)
        assert opened.status_code == 201
        send_parts(member, opened.json(), again)
        assert collect_garbage(pool, remove=False).digests == (doomed["digest"],)
        assert collect_garbage(pool, remove=True).removed == (doomed["digest"],)
        [told, *_] = filled.admin.get(f"{API}/audit?action=pool.collect-garbage").json()["items"]
        assert told["details"]["removed"] == [doomed["digest"]]
        assert not pool.storage.has_content(doomed["digest"])
        completed = member.post(f"{API}/uploads/{opened.json()['upload_id']}/complete")
        assert completed.status_code == 201
        assert member.get(f"{API}/models/ops-a/again-2/versions/1/content").content == again
        check = check_pool(pool)
    assert check.is_sound
    assert check.problems == ()


def test_checking_finds_missing_and_leftover_files(filled: PoolDriver) -> None:
    with open_pool_offline(filled.settings) as pool:
        check = check_pool(pool)
        assert (check.is_sound, check.problems) == (True, ())
        listed = filled.admin.get(f"{API}/models?limit=200&state=any").json()["items"]
        assert check.versions == len(listed), "deleted ones do not count"
        pool.storage.remove_content(sha256(CONTENT))
        upload(filled.member("ops-a"), "ops-a/leftover")
        filled.member("ops-a").delete(f"{API}/models/ops-a/leftover/versions/1")
        problems = check_pool(pool).problems
    assert [(problem.kind, problem.is_damage) for problem in problems] == [
        ("file-missing", True),
        ("file-unknown", False),
    ]
    assert problems[0].subject == "ops-a/gaze@1"
    answer = filled.member("ops-a").get(f"{API}/models/ops-a/gaze/versions/1/content")
    assert error_of(answer) == (500, "content_missing")
