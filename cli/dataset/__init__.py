"""``poolctl dataset``: draw, check, convert, split and show annotations."""

from cli.dataset import change, check
from cli.frame.options import group

app = group("Check, convert, split and show annotations; draw synthetic data.")
app.add_typer(check.app)
app.add_typer(change.app)
