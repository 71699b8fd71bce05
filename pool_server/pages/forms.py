"""What a browser sends with a form."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from fastapi import Request

from pool_server.errors import NotAllowedError, RefusedError
from pool_server.pages.visitor import cookie_name, has_form_key, require_own_page

CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf"
MOST_FIELDS = 400
_FORM = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form; one that was left out is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, [""])[0].strip()

    def all(self, name: str) -> list[str]:
        """Return all values of a field that may come several times, without empty ones."""
        return [each.strip() for each in self._fields.get(name, []) if each.strip()]

    def has(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return bool(self[name])

    def kept(self) -> dict[str, str]:
        """Return what was typed, to show it again; secrets are typed again."""
        hidden = {CSRF_FIELD, "token", "secret"}
        return {name: values[0] for name, values in self._fields.items() if name not in hidden}


async def read_form(request: Request) -> Form:
    """Return the form in a request's body; empty where the body is no form.

    Raises `RefusedError`: it has too many fields, or text that is not Unicode.
    """
    if not request.headers.get("content-type", "").startswith(_FORM):
        return Form({})
    body = await request.body()
    try:
        fields = parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError as error:
        raise RefusedError(
            f"the form cannot be read: {error}",
            hint=f"Send at most {MOST_FIELDS} fields, as a browser does.",
        ) from error
    return Form(fields)


async def require_own_form(request: Request) -> None:
    """Raise `NotAllowedError` unless a page of this pool sent a change for its own visitor."""
    require_own_page(request)
    sent = request.headers.get(CSRF_HEADER) or (await read_form(request))[CSRF_FIELD]
    secret = request.cookies.get(cookie_name(request), "")
    if not secret or not has_form_key(sent, secret):
        raise NotAllowedError(
            "the form belongs to another log-in, or to none",
            code="form_expired",
            hint="Go back, load the page anew, and send the form again.",
        )
