"""The engines for long work: processes of this machine, or a cluster of Dask."""

from pathlib import Path

from site_agent.errors import InvalidInputError
from site_agent.work.processes import processor_count
from site_agent.work.workers import LocalWorkers, Workers


def open_workers(
    place: str, folder: Path, *, advice: str, fitting: int = 0, tasks_each: int | None = 25
) -> Workers:
    """Return the workers that a user chose.

    `place`: Their number, or the address of a scheduler of Dask (``tcp://head:8786``); empty: as
    many processes as are `fitting`, or as there are processors. `folder`: Where they read and
    write. `advice`: A remedy if memory runs out.
    """
    if "://" in place:
        from site_agent.work.dask_workers import DaskWorkers

        return DaskWorkers(place, folder, advice=advice)
    if place and not place.isdecimal():
        raise InvalidInputError(
            f"--workers {place}: expected a number, or a scheduler of Dask: tcp://HOST:8786"
        )
    return LocalWorkers(
        int(place or 0) or fitting or processor_count(), advice=advice, tasks_each=tasks_each
    )
