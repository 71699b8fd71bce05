"""Every route, and each caller's answer: the table of `test_permissions`."""

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
# The first six are mostly REFUSED. Each row has somebody who succeeds, on something that was there
# for all who were refused before; `permission_subjects` says what that is. What the path needs next
# to PATH_VALUES goes there, a body into BODIES.
CALLERS = (
    "nobody", "unknown", "expired", "revoked", "suspended", "narrowed",
    "viewer", "foreign", "own", "curator", "site-admin", "admin",
)  # fmt: skip
REFUSED = (401, 401, 401, 401, 403, 403)
EVERYBODY = (200,) * 12
ANY_TOKEN = (401, 401, 401, 401, 403, 200, 200, 200, 200, 200, 200, 200)

# One that no other test has a recipe name: the pool is everybody's.
UNKNOWN_DIGEST = sha256(b"of the permission matrix")

# Of callers without any token, or with one of any site that is not suspended.
OPEN: dict[tuple[str, str], tuple[int, ...]] = {
    **{
        ("GET", path): EVERYBODY
        for path in ("/healthz", "/readyz", "/api/v1", "/", "/openapi.json")
    },
    ("HEAD", "/openapi.json"): EVERYBODY,
    **{
        ("GET", f"/api/v1/{path}"): ANY_TOKEN
        for path in ("whoami", "sites", "sites/{site}/keys", "vocabulary")
    },
    # Its secret says who may.
    ("POST", "/api/v1/invitations/accept"): (201,) * 12,
}
# Method, and the answers to viewer, foreign, own, curator, site-admin, admin; ~ is /api/v1.
TABLE = """
GET    403 403 403 403 403 200 /metrics
POST   403 403 403 403 403 201 ~/sites
PATCH  403 403 403 403 200 200 ~/sites/{site}
GET    403 403 403 403 200 200 ~/usage
GET    403 403 403 403 200 200 ~/users
PATCH  403 403 403 403 200 200 ~/users/{site}/{user}
GET    403 403 403 403 200 200 ~/invitations
POST   403 403 403 403 201 201 ~/invitations
DELETE 403 403 403 403 204 204 ~/invitations/{invitation_id}
GET    403 403 403 403 200 200 ~/tokens
POST   403 403 403 403 201 201 ~/tokens
DELETE 403 403 403 403 204 204 ~/tokens/{token_id}
GET    200 200 200 200 200 200 ~/models
GET    200 200 200 200 200 200 ~/models/facets
GET    200 200 200 200 200 200 ~/models/{site}/{name}
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/content
HEAD   200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/content
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/lineage
GET    200 200 200 200 200 200 ~/lineage/{digest}
GET    403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/withdrawal-preview
POST   403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/withdraw
POST   200 200 200 200 200 200 ~/withdrawals/check
GET    200 200 200 200 200 200 ~/events
GET    403 403 403 403 200 200 ~/audit
POST   403 403 200 200 200 200 ~/sites/{site}/keys/challenge
POST   403 403 201 201 201 201 ~/sites/{site}/keys
POST   403 403 200 200 200 200 ~/sites/{site}/keys/{key_id}/revoke
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/statement
PUT    403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/statement
# Its site may hand it on, and whoever looks after the whole pool.
POST   200 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/export
GET    200 200 200 200 200 200 ~/models/{site}/{name}/sharing
PUT    403 403 200 200 200 200 ~/models/{site}/{name}/sharing
# A draft, which is not there for others.
POST   403 404 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/publish
POST   403 403 403 200 200 200 ~/models/{site}/{name}/versions/{reference}/quarantine
POST   403 403 403 200 200 200 ~/models/{site}/{name}/versions/{reference}/release
DELETE 403 403 204 204 204 204 ~/models/{site}/{name}/versions/{reference}
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/card
PUT    403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/card
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/receipts
PUT    403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/receipts
PUT    403 403 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/description
GET    200 200 200 200 200 200 ~/pictures/{digest}/{size}
GET    200 200 200 200 200 200 ~/models/{site}/{name}/versions/{reference}/evaluations
GET    200 200 200 200 200 200 ~/evaluations
GET    200 200 200 200 200 200 ~/evaluations/summaries
POST   403 201 201 201 201 201 ~/evaluations
POST   403 403 201 201 201 201 ~/uploads
GET    403 200 200 200 200 200 ~/uploads
GET    403 404 200 200 200 200 ~/uploads/{upload_id}
POST   403 404 200 200 200 200 ~/uploads/{upload_id}/parts
PUT    403 404 204 204 204 204 ~/uploads/{upload_id}/parts/{number}
POST   403 404 201 201 201 201 ~/uploads/{upload_id}/complete
DELETE 403 404 204 204 204 204 ~/uploads/{upload_id}
GET    200 200 200 200 200 200 ~/merges/fit
GET    200 200 200 200 200 200 ~/merges
POST   403 403 202 202 202 202 ~/merges
GET    200 404 200 200 200 200 ~/merges/{merge_id}
POST   403 404 200 200 200 200 ~/merges/{merge_id}/cancel
GET    200 200 200 200 200 200 ~/rounds
GET    200 200 200 200 200 200 ~/rounds/waiting
POST   403 403 201 201 201 201 ~/rounds
GET    200 404 200 200 200 200 ~/rounds/{round_id}
PUT    403 404 200 200 200 200 ~/rounds/{round_id}/terms
POST   403 404 200 200 200 200 ~/rounds/{round_id}/close
POST   403 404 200 200 200 200 ~/rounds/{round_id}/cancel
POST   403 404 201 201 201 201 ~/rounds/{round_id}/contributions
POST   403 404 201 201 201 201 ~/rounds/{round_id}/contributions/uploads/{upload_id}/complete
DELETE 403 404 200 200 200 200 ~/rounds/{round_id}/contributions/{site}
# Nobody but the site itself, whoever looks after the pool.
GET    403 404 200 200 200 404 ~/rounds/{round_id}/reply
POST   403 404 202 202 202 202 ~/rounds/{round_id}/finish
GET    200 200 200 200 200 200 ~/secure/sessions
POST   403 403 201 201 201 201 ~/secure/sessions
GET    200 404 200 200 200 200 ~/secure/sessions/{session_id}
GET    200 404 200 200 200 200 ~/secure/sessions/{session_id}/posts
POST   403 404 201 201 201 201 ~/secure/sessions/{session_id}/posts
POST   403 404 201 201 201 201 ~/secure/sessions/{session_id}/files
POST   403 404 201 201 201 201 ~/secure/sessions/{session_id}/files/uploads/{upload_id}/complete
HEAD   200 404 200 200 200 200 ~/secure/sessions/{session_id}/files/{digest}
GET    200 404 200 200 200 200 ~/secure/sessions/{session_id}/files/{digest}
"""


def read_row(line: str) -> tuple[tuple[str, str], tuple[int, ...]]:
    method, *answers, path = line.split()
    return (method, path.replace("~", "/api/v1")), (*REFUSED, *map(int, answers))


MATRIX = OPEN | dict(read_row(line) for line in TABLE.splitlines() if line and line[0] != "#")

PATH_VALUES: dict[str, Any] = {
    "site": SITE,
    "name": "face",
    "reference": "1",
    "number": 1,
    "user": "ada",
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
    ("PATCH", "/api/v1/sites/{site}"): {"json": {"contact": "room 3"}},
    ("PATCH", "/api/v1/users/{site}/{user}"): {"json": {"display_name": "Ada"}},
    ("POST", "/api/v1/invitations"): {"json": {"site": SITE}},
    ("PUT", "/api/v1/models/{site}/{name}/sharing"): {"json": {"visibility": "consortium"}},
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/withdraw"): {
        "json": {"reason": "licence"}
    },
    ("POST", "/api/v1/withdrawals/check"): {"json": {"digests": [UNKNOWN_DIGEST]}},
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/quarantine"): {
        "json": {"reason": "doubt"}
    },
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
