"""``poolctl federated``: networks that several sites train together.

Each engine of rounds has a module of its own; a new one is a new file and one line here.
"""

from __future__ import annotations

from cli.federated import init, live, simulate, submit
from cli.frame.options import group

app = group("Train networks together with other sites.")
app.add_typer(init.app)
app.add_typer(simulate.app)
app.add_typer(live.app)
app.add_typer(submit.app)
