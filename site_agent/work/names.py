"""Names of files that every system accepts."""

import re

_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"
}


def portable_name(name: str) -> str:
    """Return a name for a file or folder that every system accepts.

    Windows refuses some characters, trailing dots and spaces, and the names of devices.

    >>> [portable_name(name) for name in ("eyes.dat", "a:b", "con.svm", "end.")]
    ['eyes.dat', 'a-b', 'con_.svm', 'end']
    """
    name = _REFUSED_CHARACTERS.sub("-", name).rstrip(". ") or "_"
    stem, dot, suffix = name.partition(".")
    if stem.rstrip().lower() in _DEVICES:
        return f"{stem.rstrip()}_{dot}{suffix}"
    return name
