"""The pages for a browser: whole, legible, and with advice that fits."""

import re
from html.parser import HTMLParser
from itertools import product
from typing import Any

from pool_server import look
from pool_server.pages.pool_api import RefusedByApiError
from pool_server.pages.showing import Form, refused_form
from pool_server.wire.errors import ErrorBody
from tests.pool_server.merges.merge_driver import landmark_bytes, recipe_of
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pages.browser import member_browser
from tests.pool_server.pool_driver import PoolDriver, upload

SHEET = look.FOLDER / "look.css"
MEANINGS = ("accent", "good", "warn", "bad")
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Balance(HTMLParser):
    """Fails where tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_names_no_other_host(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    balance = Balance()
    balance.feed(answer.text)
    assert balance.open == []
    assert all(link.startswith(("/", "#")) for link in balance.links)
    for link in filter(lambda address: not address.startswith("#"), balance.links):
        assert pool.client(None).get(link).status_code == 200
    assert f"poolctl auth login {pool.url}" in answer.text
    assert "poolctl upload" in answer.text
    assert "<b>c" not in pool.client(None).get("/", headers={"Host": "a<b>c"}).text
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    assert "unsafe-" not in answer.headers["content-security-policy"]


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_can_be_told_from_their_ground_in_both_themes() -> None:
    token = r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)"
    colours = {name: (light, dark) for name, light, dark in re.findall(token, SHEET.read_text())}
    grounds = ("ground", "paper", "sunken")
    text = [
        *product(("ink", "quiet", "accent"), grounds),
        *product(("ink",), [f"q{shade}" for shade in range(7)]),
        *((front, f"{meaning}-soft") for meaning in MEANINGS for front in ("ink", meaning)),
        *product(("accent-strong", *MEANINGS), ("paper",)),
        *(("on-accent", "accent"), ("on-accent", "accent-strong"), ("on-bad", "bad")),
    ]
    for pairs, least in ((text, 4.5), (product(("edge", "focus"), grounds), 3.0)):
        for front, back in pairs:
            for one, two in zip(colours[front], colours[back], strict=True):
                darker, lighter = sorted((luminance(one), luminance(two)))
                assert (lighter + 0.05) / (darker + 0.05) >= least, (front, back, one, two)


def output_of(content: bytes) -> dict[str, Any]:
    return {"output": {"digest": sha256(content), "format": "dlib-shape-predictor"}}


def test_first_steps_are_ticked_until_the_first_merge(pool: PoolDriver) -> None:
    site = "steps"
    client, browser = pool.member(site), member_browser(pool, site)
    page = browser.get("/").text
    assert "First steps" in page
    assert ">done<" not in page
    versions = [upload(client, f"{site}/one", landmark_bytes(seed)) for seed in (7401, 7402)]
    assert browser.get("/").text.count(">done<") == 1
    merged = landmark_bytes(7403)
    recipe = recipe_of(versions) | output_of(merged)
    upload(client, f"{site}/merged", merged, recipe=recipe)
    assert "First steps" not in browser.get("/").text


def test_advice_fits_the_kind_and_ends_with_a_withdrawal(pool: PoolDriver) -> None:
    client, browser = pool.member("advice"), member_browser(pool, "advice")
    upload(client, "advice/gaze", network_bytes())
    upload(client, "advice/eyes", landmark_bytes(7410))
    gaze, eyes = (browser.get(f"/models/advice/{name}").text for name in ("gaze", "eyes"))
    assert "your faces" not in gaze
    assert "test.xml" not in gaze
    assert "poolctl evaluate advice/gaze@1 DATA" in gaze
    assert "Measure it on your faces: <code>poolctl evaluate advice/eyes@1 test.xml" in eyes
    path = "/api/v1/models/advice/gaze/versions/1/withdraw"
    assert client.post(path, json={"reason": "other"}).status_code == 200
    gone = browser.get("/models/advice/gaze").text
    for advice in ("Compare …", "Find models that fit", "Measure it on", "poolctl privacy"):
        assert advice not in gone
        assert advice in eyes


def test_making_again_is_advised_until_a_newer_version_is_there(pool: PoolDriver) -> None:
    client, browser = pool.member("again"), member_browser(pool, "again")
    inputs = [upload(client, f"again/in{seed}", landmark_bytes(seed)) for seed in (7420, 7421)]
    content = landmark_bytes(7422)
    recipe = recipe_of(inputs) | output_of(content)
    upload(client, "again/heir", content, recipe=recipe)
    path = "/api/v1/models/again/in7420/versions/1/withdraw"
    assert client.post(path, json={"reason": "other"}).status_code == 200
    assert "Make it again" in browser.get("/").text
    assert "poolctl merge --replay" in browser.get("/models/again/heir@1").text
    upload(client, "again/heir", landmark_bytes(7423))
    assert "Make it again" not in browser.get("/").text
    page = browser.get("/models/again/heir@1").text
    assert "poolctl merge --replay" not in page
    assert re.search(r'<a href="/models/again/heir@2">again/heir@2</a> has replaced it', page)


def test_a_file_that_is_no_model_gets_a_heading_of_its_own() -> None:
    problem = "file format: found a video (MP4) at byte 0, expected a model"
    body = ErrorBody(code="format_refused", message=problem)
    error = RefusedByApiError(422, body)
    state = refused_form(Form({}), error)
    assert (state.message, dict(state.errors)) == ("This file cannot be taken", {"file": problem})


def test_a_name_may_be_typed_with_its_site(pool: PoolDriver) -> None:
    browser = member_browser(pool, "pages-named")
    fields = {"name": "pages-named/eyes", "file_name": "a.svm", "size_bytes": "9"}
    answer = browser.post("/uploads", fields | {"digest": "ab" * 32}, form_on="/account")
    assert answer.json()["upload_id"], answer.text
