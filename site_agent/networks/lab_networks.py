"""Networks of a lab's own: torch modules that the lab names as PACKAGE:CLASS.

Such a class

- is built without arguments, and always with the same entries;
- has the class attribute `view`, a name of `site_agent.networks.views.VIEWS` ("eye" without it),
  and `version`, a number that changes when the same parameters would give other outputs (1);
- answers ``forward(pictures, head)`` with a tensor (n, 2), the numbers of the view's target:
  pictures, float32 (n, channels, height, width), have mean 0 and deviation 1 in each channel; head,
  float32 (n, 2), has yaw and pitch of the head, 0 where the view knows none;
- draws no random numbers in `forward`, so that rounds can be repeated;
- registers its last layer last, by which methods find the part that stays at home.

An import runs code. So a class is imported only where this site names it: in the command at hand
(``--architecture``), or in its rules, ``networks`` under ``[rounds]`` of ``config.toml``. A name in
a network's file, from a pool or from a server is compared with these, never imported.
"""

import importlib
import os
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING

from site_agent.errors import InvalidInputError
from site_agent.networks.views import View, find_view
from site_agent.own_folders import config_folder

if TYPE_CHECKING:
    from torch import nn

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAMED = "POOL_NETWORKS"
"""Variable by which a command tells its own processes the networks that it names."""


def is_lab_network(name: str) -> bool:
    """Return whether an architecture's name is one of a class."""
    return ":" in name


def name_network(name: str | None) -> None:
    """Permit a class that the user of this command names."""
    if name is not None and is_lab_network(name):
        os.environ[_NAMED] = ",".join({*os.environ.get(_NAMED, "").split(","), name} - {""})


def find_class(name: str) -> "type[nn.Module]":
    """Return a class that this site names; raise `InvalidInputError` for another one."""
    if name not in _named():
        raise InvalidInputError(
            f"the network is of the class {name}, which this site does not name; its code was not "
            "imported",
            hint="If it is your own, name it by --architecture, and for rounds and evaluations in "
            f'{config_folder() / "config.toml"}: [rounds] networks = ["{name}"].',
        )
    return _imported(name)


def describe(name: str) -> tuple[int, int, View]:
    """Return the version of a class, its number of parameters, and its view."""
    import torch

    kind = find_class(name)
    try:
        with torch.device("meta"):
            parameters = sum(item.numel() for item in kind().parameters())
    except TypeError as error:
        raise InvalidInputError(f"{name}: cannot be built without arguments: {error}") from error
    view = find_view(getattr(kind, "view", "eye"), name)
    return int(getattr(kind, "version", 1)), parameters, view


def _named() -> set[str]:
    """Return the classes that the command and the site's rules name."""
    try:
        with (config_folder() / "config.toml").open("rb") as file:
            rules = tomllib.load(file).get("rounds", {})
    except (OSError, tomllib.TOMLDecodeError):
        rules = {}
    listed = rules.get("networks", ()) if isinstance(rules, dict) else ()
    names = {str(name) for name in listed} if isinstance(listed, list) else set()
    return (names | set(os.environ.get(_NAMED, "").split(","))) - {""}


@cache
def _imported(name: str) -> "type[nn.Module]":
    from torch import nn

    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"{name!r}: expected PACKAGE:CLASS, such as my_package:Network")
    module_name, _, class_name = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{name}: cannot be imported: {error}",
            hint="Install the package next to poolctl, or set PYTHONPATH to its folder.",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise InvalidInputError(f"{name}: found {kind!r}, expected a subclass of torch.nn.Module")
    return kind
