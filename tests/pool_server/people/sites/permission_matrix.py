"""Every route, and each caller's answer: the table of `test_permissions`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.pool_server.model_files import sha256

SITE, PARTNER, FOREIGN = "permissions", "permissions-partner", "permissions-foreign"

# How a row of MATRIX reads. Its twelve entries are what these get, in this order:
#
#   nobody       no token at all
#   unknown      a token that the pool never gave
#   expired      a token whose time is over
#   revoked      a token that was revoked
#   suspended    a contributor of a site that is suspended
#   narrowed     an admin of the pool, by a token with all scopes but the one that the route needs
#   viewer       a viewer of the site that the path is about
#   foreign      a contributor of another site
#   own          a contributor of the site that the path is about
#   curator      a curator of that site
#   site-admin   an admin of that site
#   admin        an admin of the whole pool
#
# The first six are mostly REFUSED; a row is then (*REFUSED, viewer, foreign, own, curator,
# site-admin, admin). Each row has somebody who succeeds, on something that was there for all who
# were refused before; `permission_subjects` says what that is. What the path needs beside
# PATH_VALUES goes there, a body into BODIES.
CALLERS = (
    "nobody", "unknown", "expired", "revoked", "suspended", "narrowed",
    "viewer", "foreign", "own", "curator", "site-admin", "admin",
)  # fmt: skip
REFUSED = (401, 401, 401, 401, 403, 403)
EVERYBODY = (200,) * 12
ANY_TOKEN = (401, 401, 401, 401, 403, 200, 200, 200, 200, 200, 200, 200)

# One that no other test has a recipe name: the pool is everybody's.
UNKNOWN_DIGEST = sha256(b"of the permission matrix")

MATRIX: dict[tuple[str, str], tuple[int, ...]] = {
    ("GET", "/healthz"): EVERYBODY,
    ("GET", "/readyz"): EVERYBODY,
    ("GET", "/metrics"): (*REFUSED, 403, 403, 403, 403, 403, 200),
    ("GET", "/"): EVERYBODY,
    ("GET", "/docs"): EVERYBODY,
    ("GET", "/openapi.json"): EVERYBODY,
    ("HEAD", "/openapi.json"): EVERYBODY,
    ("GET", "/api/v1/whoami"): ANY_TOKEN,
    ("GET", "/api/v1/sites"): ANY_TOKEN,
    ("POST", "/api/v1/sites"): (*REFUSED, 403, 403, 403, 403, 403, 201),
    ("PATCH", "/api/v1/sites/{site}"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/usage"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/users"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("PATCH", "/api/v1/users/{site}/{user}"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/invitations"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("POST", "/api/v1/invitations"): (*REFUSED, 403, 403, 403, 403, 201, 201),
    # Its secret says who may.
    ("POST", "/api/v1/invitations/accept"): (201,) * 12,
    ("DELETE", "/api/v1/invitations/{invitation_id}"): (*REFUSED, 403, 403, 403, 403, 204, 204),
    ("GET", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("POST", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 403, 201, 201),
    ("DELETE", "/api/v1/tokens/{token_id}"): (*REFUSED, 403, 403, 403, 403, 204, 204),
    ("GET", "/api/v1/models"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/facets"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("HEAD", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/lineage"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/lineage/{digest}"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/withdrawal-preview"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/withdraw"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/successors"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/withdrawals"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/withdrawals/check"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/events"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/events/feed"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/audit"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/sites/{site}/keys"): ANY_TOKEN,
    ("POST", "/api/v1/sites/{site}/keys/challenge"): (*REFUSED, 403, 403, 200, 200, 200, 200),
    ("POST", "/api/v1/sites/{site}/keys"): (*REFUSED, 403, 403, 201, 201, 201, 201),
    ("POST", "/api/v1/sites/{site}/keys/{key_id}/revoke"): (*REFUSED, 403, 403, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    # Its site may hand it on, and whoever looks after the whole pool.
    ("POST", "/api/v1/exports"): (*REFUSED, 200, 403, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/record"): (
        *REFUSED, 200, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/sharing"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/sharing"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/vocabulary"): ANY_TOKEN,
    ("GET", "/api/v1/queue"): (*REFUSED, 403, 403, 403, 200, 200, 200),
    # A draft, which is not there for others.
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/publish"): (
        *REFUSED, 403, 404, 200, 200, 200, 200,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/quarantine"): (
        *REFUSED, 403, 403, 403, 200, 200, 200,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/release"): (
        *REFUSED, 403, 403, 403, 200, 200, 200,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}/versions/{reference}"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}"): (*REFUSED, 403, 403, 200, 200, 200, 200),
    ("PUT", "/api/v1/models/{site}/{name}/aliases/{alias}"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}/aliases/{alias}"): (
        *REFUSED, 403, 403, 204, 204, 204, 204,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/card"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/card"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/receipts"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/receipts"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/description"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/pictures/{digest}/{size}"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/evaluations"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/evaluations"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/evaluations/summaries"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/evaluations"): (*REFUSED, 403, 201, 201, 201, 201, 201),
    ("POST", "/api/v1/uploads"): (*REFUSED, 403, 403, 201, 201, 201, 201),
    ("GET", "/api/v1/uploads"): (*REFUSED, 403, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/uploads/{upload_id}/parts"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("PUT", "/api/v1/uploads/{upload_id}/parts/{number}"): (*REFUSED, 403, 404, 204, 204, 204, 204),
    ("POST", "/api/v1/uploads/{upload_id}/complete"): (*REFUSED, 403, 404, 201, 201, 201, 201),
    ("DELETE", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 204, 204, 204, 204),
    ("GET", "/api/v1/merges/fit"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/merges"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/merges"): (*REFUSED, 403, 403, 202, 202, 202, 202),
    ("GET", "/api/v1/merges/{merge_id}"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/merges/{merge_id}/cancel"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("GET", "/api/v1/rounds"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/rounds/waiting"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds"): (*REFUSED, 403, 403, 201, 201, 201, 201),
    ("GET", "/api/v1/rounds/{round_id}"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("PUT", "/api/v1/rounds/{round_id}/terms"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/close"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/cancel"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/contributions"): (*REFUSED, 403, 404, 201, 201, 201, 201),
    ("POST", "/api/v1/rounds/{round_id}/contributions/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 201, 201, 201, 201,
    ),
    ("DELETE", "/api/v1/rounds/{round_id}/contributions/{site}"): (
        *REFUSED, 403, 404, 200, 200, 200, 200,
    ),
    # Nobody but the site itself, whoever looks after the pool.
    ("GET", "/api/v1/rounds/{round_id}/reply"): (*REFUSED, 403, 404, 200, 200, 200, 404),
    ("POST", "/api/v1/rounds/{round_id}/finish"): (*REFUSED, 403, 404, 202, 202, 202, 202),
    ("GET", "/api/v1/secure/sessions"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/secure/sessions"): (*REFUSED, 403, 403, 201, 201, 201, 201),
    ("GET", "/api/v1/secure/sessions/{session_id}"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("GET", "/api/v1/secure/sessions/{session_id}/posts"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/secure/sessions/{session_id}/posts"): (
        *REFUSED, 403, 404, 201, 201, 201, 201,
    ),
    ("POST", "/api/v1/secure/sessions/{session_id}/files"): (
        *REFUSED, 403, 404, 201, 201, 201, 201,
    ),
    ("POST", "/api/v1/secure/sessions/{session_id}/files/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 201, 201, 201, 201,
    ),
    ("HEAD", "/api/v1/secure/sessions/{session_id}/files/{digest}"): (
        *REFUSED, 200, 404, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/secure/sessions/{session_id}/files/{digest}"): (
        *REFUSED, 200, 404, 200, 200, 200, 200,
    ),
}  # fmt: skip

PATH_VALUES: dict[str, Any] = {
    "site": SITE,
    "name": "face",
    "reference": "1",
    "number": 1,
    "user": "ada",
    "alias": "best",
    "size": "thumb",
}

ROUND = {
    "base": f"{SITE}/forest@1",
    "sites": [SITE, PARTNER],
    "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
}
RECEIPT: dict[str, Any] = {
    "mode": "update", "artifact_digest": "ab" * 32, "what_left": "Differences.",
    "attacker": "The pool.", "persons": 2, "samples": 20, "held_out_persons": 3,
    "held_out_samples": 30, "seed": 0, "seconds": 1.5, "compute": "2 cores",
    "attacks": [
        {
            "name": "membership", "measure": "AUC", "chance": 0.5,
            "found": {"value": 0.8, "low": 0.7, "high": 0.9}, "control": {"value": 0.99},
        }
    ],
}  # fmt: skip
SCORES = {
    "model": f"{SITE}/face@1",
    "dataset": "ward",
    "dataset_digest": UNKNOWN_DIGEST,
    "scores": {"recall": {"value": 0.5}},
}
KEY = {"public_key": f"{'A' * 42}I="}
ENVELOPE = {"payloadType": "text/plain", "payload": "", "signatures": [{"sig": ""}]}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/v1/sites/{site}/keys/challenge"): {"json": KEY},
    ("POST", "/api/v1/sites/{site}/keys/{key_id}/revoke"): {"json": {"reason": "superseded"}},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): {
        "json": {"envelope": ENVELOPE}
    },
    ("POST", "/api/v1/exports"): {"json": {"addresses": [f"{SITE}/face@1"]}},
    ("PATCH", "/api/v1/sites/{site}"): {"json": {"contact": "room 3"}},
    ("PATCH", "/api/v1/users/{site}/{user}"): {"json": {"display_name": "Ada"}},
    ("POST", "/api/v1/invitations"): {"json": {"site": SITE}},
    ("PUT", "/api/v1/models/{site}/{name}/sharing"): {"json": {"visibility": "consortium"}},
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/withdraw"): {
        "json": {"reason": "licence"}
    },
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/successors"): {
        "json": {"successor": f"{SITE}/face@1"}
    },
    ("POST", "/api/v1/withdrawals/check"): {"json": {"digests": [UNKNOWN_DIGEST]}},
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/quarantine"): {
        "json": {"reason": "doubt"}
    },
    ("PUT", "/api/v1/models/{site}/{name}/aliases/{alias}"): {"json": {"version": "1"}},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/card"): {"json": {"text": ""}},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/receipts"): {"json": RECEIPT},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/description"): {"json": {}},
    ("GET", "/api/v1/evaluations"): {"params": {"score": "recall"}},
    ("GET", "/api/v1/evaluations/summaries"): {"params": {"digest": UNKNOWN_DIGEST}},
    ("GET", "/api/v1/merges/fit"): {"params": {"model": [f"{SITE}/face@1", f"{SITE}/heir@1"]}},
    ("POST", "/api/v1/evaluations"): {"json": SCORES},
    ("POST", "/api/v1/rounds"): {"json": ROUND},
    ("POST", "/api/v1/rounds/{round_id}/finish"): {"json": {"site": SITE, "name": "refined"}},
    ("POST", "/api/v1/secure/sessions/{session_id}/posts"): {
        "json": {"sender": SITE, "phase": "share", "envelope": "{}"}
    },
    ("POST", "/api/v1/secure/sessions/{session_id}/files"): {
        "json": {"site": SITE, "size_bytes": 9, "digest": UNKNOWN_DIGEST}
    },
}  # fmt: skip
