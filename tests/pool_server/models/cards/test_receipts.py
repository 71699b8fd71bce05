"""Privacy receipts: stored with a version, and shown as measurements by its site."""

from typing import Any

import pytest

from pool_server.wire.cards import PrivacyReceipt
from tests.pool_server.people.sites.permission_matrix import RECEIPT
from tests.pool_server.pool_driver import PoolDriver, upload

CARD = "---\nlicense: cc-by-4.0\n---\n\n# Infants\n"
ATTACK: dict[str, Any] = RECEIPT["attacks"][0]


def path_of(name: str) -> str:
    return f"/api/v1/models/receipts/{name}/versions/1"


def test_a_receipt_is_on_the_card_and_replaced_by_mode(pool: PoolDriver) -> None:
    home = pool.member("receipts")
    version = upload(home, "receipts/shown", card=CARD)
    assert home.get(f"{path_of('shown')}/card").json()["text"] == CARD
    model = RECEIPT | {"mode": "sub-model", "artifact_digest": version["digest"]}
    for item in (RECEIPT, model, RECEIPT | {"seed": 7}):
        assert home.put(f"{path_of('shown')}/receipts", json=item).status_code == 200
    reader = pool.member("receipts-reader", "viewer")
    kept = reader.get(f"{path_of('shown')}/receipts").json()["items"]
    assert [(receipt["mode"], receipt["seed"]) for receipt in kept] == [
        ("sub-model", 0),
        ("update", 7),
    ]
    assert {receipt["measured_by"] for receipt in kept} == {"the site itself"}
    card = home.get(f"{path_of('shown')}/card").json()
    assert card["source"] == CARD
    assert card["front_matter"] == {"license": "cc-by-4.0"}
    assert "## Privacy receipt" in card["text"]
    assert "| membership | 0.80 (0.70 to 0.90) | 0.50 | 0.99 |" in card["text"]
    assert "Measured by the site itself" in card["text"]
    assert "No differential privacy" in card["text"]
    # Whatever a site writes, the verdict is that of its attacks.
    flattered = RECEIPT | {"verdict": "Nothing leaks.", "level": "none found"}
    home.put(f"{path_of('shown')}/receipts", json=flattered)
    kept = reader.get(f"{path_of('shown')}/receipts").json()["items"][1]
    assert kept["level"] == "high"
    assert "(membership: 0.80 (0.70 to 0.90), chance 0.50)" in kept["verdict"]


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "other"},
        {"signal": "green"},
        {"measured_by": "a notary"},
        {"attacks": []},
        {"attacks": [ATTACK] * 33},
        {"attacks": [ATTACK | {"name": "a\nb"}]},
        {"attacks": [ATTACK | {"found": {"value": 0.5, "low": 0.9, "high": 0.1}}]},
        {"attacker": "x" * 601},
        {"mode": "sub-model"},
    ],
)
def test_receipts_of_other_files_are_refused(pool: PoolDriver, changes: dict[str, Any]) -> None:
    home = pool.member("receipts")
    upload(home, "receipts/refused")
    answer = home.put(f"{path_of('refused')}/receipts", json=RECEIPT | changes)
    assert answer.status_code == 422
    assert home.get(f"{path_of('refused')}/receipts").json() == {"items": []}


def test_text_of_a_site_is_escaped_on_the_card(pool: PoolDriver) -> None:
    home = pool.member("receipts")
    upload(home, "receipts/escaped")
    odd = RECEIPT | {"attacks": [ATTACK | {"name": "<b>|*no*"}], "what_left": "# not a title"}
    assert home.put(f"{path_of('escaped')}/receipts", json=odd).status_code == 200
    text = home.get(f"{path_of('escaped')}/card").json()["text"]
    assert r"\<b\>\|\*no\*" in text
    assert r"\# not a title" in text


@pytest.mark.parametrize(
    ("interval", "control", "level", "sentence"),
    [
        ((0.9, 0.8, 0.95), 0.99, "high", "Anyone with a picture of an eye can tell that it was"),
        ((0.6, 0.57, 0.63), 0.99, "some", "can tell better than by chance that it was among"),
        ((0.9, 0.4, 1.0), 0.99, "unclear", "20 samples and 30 held-out ones are too few"),
        ((0.55, 0.48, 0.62), 0.99, "none found", "None of 1 attacks did better than chance"),
        ((0.99, 0.98, 1.0), 0.8, "not judged", "No attack could be judged"),
    ],
)
def test_the_verdict_is_that_of_the_worst_attack_that_can_judge(
    interval: tuple[float, float, float], control: float, level: str, sentence: str
) -> None:
    value, low, high = interval
    attack = ATTACK | {
        "reveals": "membership",
        "found": {"value": value, "low": low, "high": high},
        "control": {"value": control},
    }
    receipt = PrivacyReceipt.model_validate(RECEIPT | {"attacks": [attack]})
    assert receipt.level == level
    assert sentence in receipt.verdict
