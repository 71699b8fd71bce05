"""``poolctl app``: the page with which a lab works without a terminal."""

import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import Annotated

from cli.frame.app import main
from cli.frame.options import Option, command, single
from cli.frame.output import Invocation, Reply, TableText

app = single()


@command(app, "app", "app", "app -o /data/blinks", "app --no-browser --json")
def open_app(
    invocation: Invocation,
    *,
    output: Annotated[
        Path | None, Option("Folder of results. Default: poolctl-results in the home.", "FOLDER")
    ] = None,
    port: Annotated[
        int | None, Option("Port on 127.0.0.1. Default: 8720, or the next free.", min=0, max=65535)
    ] = None,
    no_browser: Annotated[bool, Option("Print the address and do not open a browser.")] = False,
    shortcut: Annotated[bool, Option("Put an icon for the app on the desktop, and end.")] = False,
) -> Reply | None:
    """Open the app: videos, results and review on a page of this machine.

    Only you can open the page, in a browser on this machine; from elsewhere: ssh -L
    8720:127.0.0.1:8720 MACHINE, then 'poolctl app --no-browser' there. Videos are read where they
    lie; nothing is copied or sent. Closing the page or the browser stops no work. If the app runs
    already, its page is opened again. Stop with Ctrl-C.
    """
    from site_agent.app.entry import AppFolder
    from site_agent.app.recordings import Studies
    from site_agent.app.server import serve_app
    from site_agent.app.shortcut import write_shortcut

    if shortcut:
        path = write_shortcut(Path.home() / "Desktop")
        return Reply({"shortcut": path}, f"{path} opens the app.", [str(path)])

    folder = AppFolder()
    folder.make()
    place = (output or Path.home() / "poolctl-results").absolute()

    def show(address: str, stop: str = "stop with Ctrl-C", **facts: Path) -> None:
        entrance = f"{address}/enter#{folder.new_ticket()}"
        rows = [["page", entrance], *([name, str(value)] for name, value in facts.items())]
        shown = {"url": entrance, **facts}
        invocation.print_reply(Reply(shown, TableText(["what", "value"], rows), [entrance]))
        invocation.note(f"the address works once, within a minute; {stop}")
        if not no_browser:
            webbrowser.open(folder.entrance(entrance).as_uri())

    address = folder.running()
    kept = Studies(folder.place, place).first().place.parent
    if output is not None and (address or kept != place):
        invocation.note("-o is not used: the app keeps the folder of results that it has")
    if address:
        show(address, "it runs already; stop it by Quit on its page, or where it was started")
    else:
        serve_app(folder, place, port=port, on_ready=partial(show, results=kept))
    return None


def open_from_icon() -> int:
    """Open the app without a terminal; words go to ``POOL_HOME/app/log.txt``."""
    from site_agent.app.entry import AppFolder

    folder = AppFolder()
    folder.make()
    with (folder.place / "log.txt").open("w", encoding="utf-8") as log:
        # A program without console has neither on Windows.
        sys.stdout = sys.stderr = log
        return main(["app"])
