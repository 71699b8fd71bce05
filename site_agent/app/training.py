"""The pages of training: check annotated faces, train landmarks of the eyes, see quick trials."""

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from site_agent.app.models import Models
from site_agent.app.pages import Lab
from site_agent.app.rendering import redirect
from site_agent.errors import InvalidInputError, SiteAgentError
from site_agent.jobs.folder import JobView

_TRIAL = re.compile(r"trial: (\d+) faces, error ([\d.]+)")


class Training:
    """The pages of training."""

    def __init__(self, lab: Lab, models: Models) -> None:
        self.lab, self.models = lab, models

    def show(self, request: Request, problem: str = "") -> Response:
        """Show the chosen faces with their last check, and earlier trainings."""
        views, faces = self.lab.jobs.views(), self.lab.faces()
        checks = [
            v for v in views if v.job.kind == "check" and v.job.request["faces"] == str(faces)
        ]
        return self.lab.page(
            request, "train.html", status=422 if problem else 200, views=views, faces=faces,
            problem=problem, check=checks[-1] if checks else None,
            trainings=[view for view in reversed(views) if view.job.kind == "train"],
            form={name: values[0] for name, values in request.scope.get("form", {}).items()},
        )  # fmt: skip

    def check(self, request: Request) -> Response:
        """Keep the faces that a person named, and look for mistakes in them."""
        try:
            faces = self.lab.keep_faces(request.scope["form"].get("faces", [""])[0])
            if faces is None:
                raise InvalidInputError("name the file or folder of your annotated faces")
        except (SiteAgentError, OSError) as error:
            return self.show(request, str(error))
        self.lab.ask("check", f"Check of {faces.name}", "train", faces=str(faces))
        return redirect(request, "/train")

    def start(self, request: Request) -> Response:
        """Train a model on the faces that were checked last."""
        form: Mapping[str, list[str]] = request.scope["form"]
        name = form.get("name", [""])[0].strip()
        try:
            faces = self.lab.faces()
            if faces is None:
                raise InvalidInputError("the faces are no longer there; name them again")
            output = self.models.new_file(name, ".dat")
        except SiteAgentError as error:
            return self.show(request, str(error))
        job = self.lab.ask(
            "train", f"Train {output.name} on {faces.name}", "train", faces=str(faces),
            output=str(output), despite_findings="despite" in form,
        )  # fmt: skip
        return redirect(request, f"/train/{job.id}")

    def one(self, request: Request) -> Response:
        """Show one training: its quick trials as they are measured, and its end."""
        view = self.lab.jobs.view(request.path_params["job"])
        trials = [
            (int(match[1]), float(match[2]))
            for event in self.lab.jobs.events(view.job.id)
            if (match := _TRIAL.fullmatch(event["what"]))
        ]
        most = max((error for _, error in trials), default=1.0)
        return self.lab.page(
            request, "training.html", view=view, trials=trials, most=most,
            verdict=training_verdict(view, trials), number=str(view.result.get("digest", ""))[:16],
        )  # fmt: skip


def training_verdict(view: JobView, trials: list[tuple[int, float]]) -> str:
    """Return one sentence on a training."""
    state: Any = view.state
    if state.state == "done":
        return f"Trained on {view.result['faces']} faces. Test it on other faces before you use it."
    if state.state == "failed":
        return "The training failed."
    text = {"waiting": "It waits for its turn.", "cancelled": "It was cancelled."}.get(
        state.state, "It is being trained."
    )
    if len(trials) > 1:
        (few, before), (many, after) = trials[-2:]
        change = 100 * (before - after)
        more = f"From {few} to {many} faces the error of small models fell by {change:.1f} points"
        text += f" {more}." if change > 0 else " More faces did not help the small models."
    return text
