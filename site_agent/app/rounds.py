"""The pages of rounds: join one with a charter, compute a contribution, see it, send it."""

import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from pool_server.wire.rounds import RoundResponse
from site_agent.app.pages import Lab
from site_agent.app.places import allowed_folder
from site_agent.app.rendering import redirect
from site_agent.app.watching import waits_for
from site_agent.errors import InvalidInputError, NotFoundError, SiteAgentError
from site_agent.jobs.folder import JobView
from site_agent.pool import profiles, trust
from site_agent.pool.sent import read_sent
from site_agent.rounds.contract import site_rules
from site_agent.rounds.finishing import round_verdict
from site_agent.secure.charter import accept_charter, read_charter, require_accepted


class Rounds:
    """The pages of rounds."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def show(self, request: Request) -> Response:
        """List the rounds, those that wait for this lab first."""
        rounds: list[RoundResponse] = []
        site, problem = "", ""
        trusted = frozenset[str]()
        try:
            with self.lab.pool() as pool:
                site = pool.whoami().site
                rounds = list(pool.rounds.list())
                trusted = trust.trusted_sites(profiles.host_of(pool.endpoint)) | {site}
        except SiteAgentError as error:
            problem = str(error)
        waiting = {round_.round_id for round_ in rounds if waits_for(round_, site)}
        self.lab.watch.rounds = len(waiting)
        # The others need a word about trust or a charter first.
        ready = {
            round_.round_id for round_ in rounds
            if round_.secure is None and round_.created_by.partition("/")[0] in trusted
        } if self.lab.faces() else set()  # fmt: skip
        rounds.sort(key=lambda round_: round_.round_id not in waiting)
        return self.lab.page(
            request, "rounds.html", rounds=rounds, waiting=waiting, problem=problem,
            ready=ready, verdict=round_verdict,
        )  # fmt: skip

    def one(self, request: Request, problem: str = "", status: int = 422) -> Response:
        """Show a round: its terms, the preview of a contribution, and its readers."""
        with self.lab.pool() as pool:
            site = pool.whoami().site
            round_ = pool.rounds.get(request.path_params["round"])
            endpoint = pool.endpoint
            self.lab.watch.rounds = sum(waits_for(other, site) for other in pool.rounds.list())
        trusted = trust.trusted_sites(profiles.host_of(endpoint)) | {site}
        accepted = True
        if round_.secure is not None:
            try:
                require_accepted(profiles.secure_folder(), round_.secure.charter)
            except SiteAgentError:
                accepted = False
        view = self._newest(round_.round_id)
        starter = round_.created_by.partition("/")[0]
        facts = view.result if view is not None and view.state.state == "done" else {}
        content = json.dumps(json.loads(facts["announcement"]), indent=2) if facts.get("announcement") else ""  # noqa: E501 # fmt: skip
        return self.lab.page(
            request, "round.html", status=status if problem else 200, round=round_, site=site,
            view=view, facts=facts, content=content, problem=problem, accepted=accepted,
            endpoint=endpoint, rules=site_rules(endpoint), faces=self.lab.faces(),
            starter=starter, untrusted=sorted({starter} - trusted), verdict=round_verdict(round_),
            others=[part.site for part in round_.participants if part.site != site],
            busy_view=view if view is not None and not view.ended else None,
            was_sent=any(
                item.title == "Contribution to a round" and round_.round_id in item.path
                for item in read_sent()
            ),
            ours=round_.contributions().get(site), waits=waits_for(round_, site),
        )  # fmt: skip

    def change(self, request: Request) -> Response:
        """Compute, send or take back a contribution, or accept the charter of a secure round."""
        number, action = request.path_params["round"], request.path_params["action"]
        form = {name: values[0].strip() for name, values in request.scope["form"].items()}
        try:
            if action == "compute":
                self._require_idle(number)
                faces = self.lab.keep_faces(form.get("faces", "")) or self.lab.faces()
                if faces is None:
                    raise InvalidInputError("name the file or folder of your annotated faces")
                self.lab.ask(
                    "contribute", f"Compute a contribution from {faces.name}", "rounds",
                    round=number, data=str(faces),
                )  # fmt: skip
            elif action == "send":
                self._require_idle(number)
                view = self._newest(number)
                if view is None or not form.get("preview") or view.result.get("preview") != form["preview"]:  # noqa: E501 # fmt: skip
                    text = "the contribution was computed again meanwhile. Nothing was sent"
                    return self.one(request, f"{text}; look at it again", status=409)
                self.lab.ask(
                    "contribute", f"Send the contribution to round {number}", "rounds",
                    **{**view.job.request, "preview": form["preview"]},
                )  # fmt: skip
            elif action == "back":
                with self.lab.pool() as pool:
                    pool.rounds.take_back(number, pool.whoami().site)
            elif action == "charter":
                path = Path(form.get("file", "").strip("\"'")).expanduser()
                allowed_folder(path.parent)
                accept_charter(profiles.secure_folder(), read_charter(path), form.get("digest", ""))
            else:
                raise NotFoundError(f"rounds cannot be asked to {action!r}")
        except (InvalidInputError, OSError) as error:
            return self.one(request, str(error))
        return redirect(request, f"/rounds/{number}")

    def _require_idle(self, number: str) -> None:
        view = self._newest(number)
        if view is not None and not view.ended:
            raise InvalidInputError("a job on this round is waiting or running; see it below")

    def _newest(self, number: str) -> JobView | None:
        views = [
            view for view in self.lab.jobs.views()
            if view.job.kind == "contribute" and view.job.request["round"] == number
        ]  # fmt: skip
        return views[-1] if views else None
