"""Privacy receipts of models in the pool."""

import json
from pathlib import Path

from aggregators.formats import write_model
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.pool_server.people.sites.permission_matrix import RECEIPT


def test_a_receipt_is_uploaded_with_a_model_and_shown(member: Run) -> None:
    digest = write_model(make_detector(200), Path("a.svm"))
    receipt = RECEIPT | {"mode": "sub-model", "artifact_digest": digest}
    Path("receipt.json").write_text(json.dumps(receipt))
    arguments = ("upload", "a.svm", "-n", "probed", "--receipt", "receipt.json")
    uploaded = member(*arguments)
    assert uploaded.code == 0
    assert "Leak: high. " in uploaded.out
    assert "To leak less: " in uploaded.out
    assert "No differential privacy" in uploaded.out
    shown = member("models", "info", "site-a/probed")
    assert "Measured by the site itself: sub-model" in shown.out
    assert "To leak less: train with more faces" in shown.out
    assert "0.80 (0.70 to 0.90)" in shown.out
    assert member("models", "info", "site-a/probed", "--json").data["receipts"][0]["persons"] == 2
    assert "## Privacy receipt" in member("models", "info", "site-a/probed", "--card").out
    Path("receipt.json").write_text(json.dumps(receipt | {"signal": "green"}))
    refused = member(*arguments, "--json")
    assert refused.code == 2
    assert "signal: Extra inputs are not permitted" in refused.error["message"]


def test_the_receipt_of_another_file_is_refused(member: Run) -> None:
    write_model(make_detector(200), Path("a.svm"))
    for mode in ("sub-model", "update"):
        receipt = RECEIPT | {"mode": mode, "artifact_digest": "ab" * 32}
        Path("receipt.json").write_text(json.dumps(receipt))
        refused = member("upload", "a.svm", "-n", "other", "--receipt", "receipt.json", "--json")
        assert refused.code == 2
        assert "is the receipt of a file with sha256 abababababab" in refused.error["message"]
    assert member("models", "info", "site-a/other").code == 4
