"""The pages of settings and of everything that was sent."""

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pool_server.wire.models import ModelQuery
from pool_server.wire.people import INVITATION_PREFIX
from pool_server.wire.withdrawals import WithdrawalReason
from site_agent.app.pages import Lab
from site_agent.app.rendering import redirect
from site_agent.errors import InvalidInputError, NotFoundError, SiteAgentError
from site_agent.jobs.runner import chosen_slots, usual_slots
from site_agent.pool import profiles, trust
from site_agent.pool.joining import Newcomer, join, read_joining
from site_agent.pool.sent import read_sent, sent_by, sent_file, sent_verdict
from site_agent.pool.storage_connection import pin_certificate
from site_agent.rounds.contract import keep_rules, site_rules
from site_agent.training_record import installed_version

_MOST_SLOTS = 64
_REASONS: Mapping[WithdrawalReason, str] = {
    "consent-withdrawn": "a family has withdrawn its consent",
    "licence": "a licence does not allow it",
    "security": "it is not safe to use",
    "data-error": "there was a mistake in the data",
    "quality": "it is not good enough",
    "other": "another reason",
}
_RULES = ("min_faces", "least_others", "secure_only")


def _invitation(form: Mapping[str, list[str]]) -> str:
    """Return a pasted invitation, which a wrong user name does not use up; never a token."""
    secret = read_joining(form.get("secret", [""])[0])[1]
    return form["secret"][0] if secret.startswith(INVITATION_PREFIX) else ""


class LabSettings:
    """The pages of settings, and of the ledger of sent items."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._undo: tuple[str, dict[str, str]] | None = None

    def show(self, request: Request, problem: str = "") -> Response:
        """Show the pool, the trusted labs, the rules, the folders, and this machine."""
        login = profiles.load_profile()
        identity, pool_problem = None, ""
        if login.endpoint:
            try:
                with self.lab.pool() as pool:
                    identity = pool.whoami()
            except SiteAgentError as error:
                pool_problem = str(error)
        versions = f"poolctl {installed_version('poolctl')}\nPython {platform.python_version()}\n"
        host = profiles.host_of(login.endpoint)
        return self.lab.page(
            request, "settings.html", status=422 if problem else 200, problem=problem,
            login=login if login.endpoint and login.token else None, identity=identity,
            pool_problem=pool_problem, trusted=sorted(trust.trusted_sites(host)),
            rules=site_rules(login.endpoint), study=self.lab.studies.current(),
            slots=chosen_slots(), usual_slots=usual_slots(),
            saved=request.query_params.get("saved", ""), undo=self._undo,
            versions=f"{versions}{platform.system()} {platform.machine()}",
            invitation=_invitation(request.scope.get("form", {})),
            form={name: values[0] for name, values in request.scope.get("form", {}).items()},
        )  # fmt: skip

    def change(self, request: Request) -> Response:
        """Keep one setting; a value that is refused is shown with the reason."""
        form = {name: values[0].strip() for name, values in request.scope["form"].items()}
        action = request.path_params["action"]
        change: Any = getattr(self, f"_set_{action}", None)
        if not action.isalpha() or change is None:
            raise NotFoundError(f"there is no setting {action!r}")
        self._undo = None
        try:
            change(form)
        except SiteAgentError as error:
            return self.show(request, f"{error} {error.hint}".strip())
        back = form.get("back", "")
        is_round = back.removeprefix("/rounds/").isalnum() and back.startswith("/rounds/")
        return redirect(request, back if is_round else f"/settings?saved={action}")

    def _set_join(self, form: dict[str, str]) -> None:
        address, secret = read_joining(form.get("secret", ""))
        if not secret:
            raise InvalidInputError("the pasted text holds no whole token or invitation")
        if not (address := form.get("endpoint", "") or address):
            raise InvalidInputError("the pasted text names no pool: fill in its address, too")
        name = form.get("user", "")
        if not name and secret.startswith(INVITATION_PREFIX):
            raise InvalidInputError("this is an invitation: choose your user name, too")
        with sent_by("app"):
            join(pin_certificate(address), secret, Newcomer(name) if name else None)

    def _set_leave(self, _form: dict[str, str]) -> None:
        profiles.forget_token(profiles.load_profile().name)

    def _set_trust(self, form: dict[str, str]) -> None:
        self._trust(form, trusted=True)

    def _set_distrust(self, form: dict[str, str]) -> None:
        self._trust(form, trusted=False)
        self._undo = "trust", form

    def _trust(self, form: dict[str, str], *, trusted: bool) -> None:
        site = form.get("site", "")
        with self.lab.pool() as pool:
            host = profiles.host_of(pool.endpoint)
            if trusted:
                pool.signatures.keys(site)  # a lab that the pool does not know is an error
        known = trust.trusted_sites(host)
        trust.set_trusted_sites(host, known | {site} if trusted else known - {site})

    def _set_rules(self, form: dict[str, str]) -> None:
        before = site_rules("")
        keep_rules(**{name: form[name] for name in _RULES if name in form})
        kept = {name: str(getattr(before, name)).lower() for name in _RULES}
        self._undo = "rules", kept

    def _set_folder(self, form: dict[str, str]) -> None:
        study = self.lab.studies.current()
        folders = tuple(folder for folder in study.added if folder != form.get("folder"))
        self.lab.studies.keep(replace(study, added=folders))

    def _set_machine(self, form: dict[str, str]) -> None:
        text = form.get("slots", "")
        if text and not (text.isdecimal() and 1 <= int(text) <= _MOST_SLOTS):
            raise InvalidInputError(f"recordings at once: {text!r}, expected a whole number from 1")
        config = profiles.read_toml(profiles.config_file())
        config["jobs"] = {"slots": int(text)} if text else {}
        profiles.write_private_toml(config, profiles.config_file())

    def sent(self, request: Request) -> Response:
        """Show everything that was sent to pools, with every byte of its words."""
        views, items = self.lab.jobs.views(), read_sent()
        told = [item for item in items if item.is_item]
        return self.lab.page(
            request, "sent.html", views=views, items=told, questions=len(items) - len(told),
            verdict=sent_verdict(told), place=sent_file(),
            jobs=[v for v in views if v.job.kind in {"upload", "contribute"} and v.state.state != "done"],  # noqa: E501
        )  # fmt: skip

    def withdrawing(self, request: Request) -> Response:
        """Show the models and labs that the withdrawal of a sent model would concern."""
        number = request.query_params.get("model", "")
        sent = [item.facts for item in read_sent() if item.title == "Model"]
        known = [facts for facts in sent if number and facts.get("digest", "").startswith(number)]
        if not known:
            raise NotFoundError("no such model was sent from this machine")
        facts = known[0]
        query = ModelQuery(site=facts["site"], name=facts["name"])
        with self.lab.pool() as pool:
            versions = [v for v in pool.models.find(query) if v.digest == facts["digest"]]
            if not versions:
                raise NotFoundError(
                    f"{facts['site']}/{facts['name']}: the pool does not give it out; it was "
                    "withdrawn already, or a person of the pool has yet to release it"
                )
            foreseen = pool.withdrawals.preview(versions[0].address)
        others = [lab for lab in foreseen.sites if lab.site != facts["site"]]
        return self.lab.page(
            request, "withdraw.html", foreseen=foreseen, others=others, reasons=_REASONS
        )

    def withdraw(self, request: Request) -> Response:
        """Withdraw a model of the lab, for good."""
        form = {name: values[0].strip() for name, values in request.scope["form"].items()}
        reason = next((word for word in _REASONS if word == form.get("reason")), None)
        if reason is None:
            raise InvalidInputError("choose a reason")
        with self.lab.pool() as pool:
            explanation = form.get("explanation", "")
            pool.withdrawals.withdraw(form.get("address", ""), reason, explanation=explanation)
        return redirect(request, "/sent")
