"""``poolctl env``: what is installed here, where things are kept, and which pool is used."""

from cli.frame.app import installed_version
from cli.frame.errors import EXTRA_OF_LIBRARY
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText

app = single()


@command(app, "env", "env", "env --json")
def env(invocation: Invocation) -> Reply:
    """Show versions, folders, installed extras and the pool in use.

    Include the output when you ask for help.
    """
    import platform

    from site_agent.pool import profiles

    profile = profiles.load_profile(invocation.profile or None)
    missing: dict[str, list[str]] = {extra: [] for extra in EXTRA_OF_LIBRARY.values()}
    for library, extra in EXTRA_OF_LIBRARY.items():
        if not _is_installed(library):
            missing[extra].append(library)
    data = {
        "poolctl": installed_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "config_file": str(profiles.config_file()),
        "data_folder": str(profiles.data_folder()),
        "cache_folder": str(profiles.cache_folder()),
        "profile": profile.name,
        "pool": profile.endpoint or None,
        "logged_in": bool(profile.token),
        "offline": profiles.is_offline(),
        "extras": {extra: not lacking for extra, lacking in missing.items()},
    }
    rows = [
        [name.replace("_", " "), _words(value)] for name, value in data.items() if name != "extras"
    ]
    for extra, lacking in missing.items():
        state = (
            "installed"
            if not lacking
            else f'missing {", ".join(lacking)} (pip install "poolctl[{extra}]")'
        )
        rows.append([f"extra {extra}", state])
    return Reply(data, TableText(["what", "value"], rows), [str(data["poolctl"])])


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _is_installed(library: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(library) is not None
    except ValueError:  # loaded, but without a specification
        return False
