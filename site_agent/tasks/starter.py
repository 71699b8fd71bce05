"""The landmark model of an analysis for which nobody named one."""

from collections.abc import Callable
from pathlib import Path

from site_agent import own_folders
from site_agent.pool.profiles import usual_landmarks
from site_agent.tasks.caller import Caller


def default_landmarks(caller: Caller, look: Callable[[], None] = lambda: None) -> str:
    """Return the remembered model's name, or the path of the starter, which is trained once.

    `look`: Looks at the input before the training, so that a mistake is named at once.
    """
    return usual_landmarks() or str(_starter(caller, look))


def _starter(caller: Caller, look: Callable[[], None]) -> Path:
    from site_agent.training.starter import find_starter, kept_starter

    path = kept_starter(own_folders.cache_folder())
    if not path.is_file():
        look()
        caller.note(
            f"no --landmarks given: training a starter on drawn faces, once, for one to three "
            f"minutes; it is kept as {path}"
        )
    with caller.progress("train starter") as report:
        return find_starter(own_folders.cache_folder(), report)
