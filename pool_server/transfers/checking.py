"""Check an uploaded model file in a limited child process.

Reading untrusted bytes may crash or take much memory; only the child process ends then. It needs
no network, no database and no secret. `run` is its program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregators.errors import AggregatorError, FormatError
from aggregators.formats import fingerprint, read_model, recognise
from aggregators.formats.safetensors_file import require_shareable
from aggregators.methods import merge_keys
from pool_server.errors import FormatRefusedError
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, run_limited

if TYPE_CHECKING:
    # Not at run time: the helper process must not load the database.
    from pool_server.settings import PoolSettings

_HINT = "`poolctl inspect FILE` reads the file in the same way on your machine."


@dataclass(frozen=True)
class CheckedModel:
    """The findings of the check of a file.

    `remade` says that the pool has made the very bytes by the recipe that came with them.
    """

    kind: str
    format: str
    fingerprint: dict[str, Any]
    merge_keys: dict[str, str]
    remade: bool = False

    @property
    def fingerprint_columns(self) -> dict[str, dict[str, Any]]:
        """The fingerprint as a version has it: single values and, apart from them, lists."""
        lists = {
            key: value for key, value in self.fingerprint.items() if isinstance(value, list | dict)
        }
        single = {key: value for key, value in self.fingerprint.items() if key not in lists}
        return {"fingerprint": single, "fingerprint_lists": lists}


def run_check(
    path: Path, file_name: str, size_bytes: int, settings: "PoolSettings"
) -> CheckedModel:
    """Check a file in a process of its own."""
    answer = run_limited(
        "pool_server.transfers.checking",
        {"path": str(path), "name": file_name},
        check_limits(settings, size_bytes),
        activity=f"{file_name}: reading the file",
    )
    if not answer["accepted"]:
        raise FormatRefusedError(str(answer["message"]), hint=_HINT)
    return CheckedModel(
        kind=answer["kind"],
        format=answer["format"],
        fingerprint=answer["fingerprint"],
        merge_keys=answer["merge_keys"],
    )


def check_limits(settings: "PoolSettings", size_bytes: int) -> Limits:
    """Return the limits of a program that reads files of `size_bytes` together."""
    memory_bytes = settings.check_memory_bytes + MEMORY_FACTOR * size_bytes
    return Limits(memory_bytes, settings.check_time_s)


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the model file `path` of any known format; messages call it `name`.

    The answer is one of::

        {"accepted": true, "kind": ..., "format": ..., "fingerprint": {...}, "merge_keys": {...}}
        {"accepted": false, "message": "what was found and what was expected"}
    """
    path, name = Path(plan["path"]), plan["name"]
    try:
        format_name = recognise(path).name
        model = read_model(path, max_bytes=path.stat().st_size)
        require_shareable(model, name)
        described = fingerprint(model, format_name)
        return {
            "accepted": True,
            "kind": described["kind"],
            "format": described["format"],
            "fingerprint": described,
            "merge_keys": merge_keys(described),
        }
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return {"accepted": False, "message": f"{name}: {error}"}
