"""Releases as repositories of the Hugging Face Hub, by its own library.

The library takes address and login from its own settings (``HF_ENDPOINT``, ``HF_TOKEN``,
``hf auth login``). New repositories are private.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from site_agent.errors import InvalidInputError, PoolUnreachableError, ReleaseRefusedError
from site_agent.releases.oci import answer_error
from site_agent.releases.release import Release


def push_to_hub(release: Release, reference: str) -> str:
    """Store a release as a commit of OWNER/NAME[@BRANCH], and return the commit."""
    from huggingface_hub import HfApi

    repository, _, branch = reference.partition("@")
    with _refusals(repository):
        api = HfApi(library_name="poolctl")
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=release.folder,
            revision=branch or None,
            commit_message=f"{release.record.address} from a pool",
            delete_patterns="*",
        )
    return str(commit.oid)


class HubRepository:
    """One commit of OWNER/NAME[@REVISION]."""

    def __init__(self, reference: str) -> None:
        from huggingface_hub import HfApi

        self._repository, _, revision = reference.partition("@")
        self._api = HfApi(library_name="poolctl")
        with _refusals(self._repository):
            self._commit = self._api.model_info(self._repository, revision=revision or None).sha

    def pull(self, name: str, target: Path, most_bytes: int) -> None:
        """Write the file of this name to a path."""
        with _refusals(self._repository):
            known = self._api.get_paths_info(self._repository, name, revision=self._commit)
            size = getattr(known[0], "size", None) if known else None
            if size is None or size > most_bytes:
                raise ReleaseRefusedError(
                    f"{self._repository}: {name}: found {size} bytes, expected a file of at most "
                    f"{most_bytes:,}"
                )
            self._api.hf_hub_download(
                self._repository, name, revision=self._commit, local_dir=target.parent
            )


@contextmanager
def _refusals(repository: str) -> Iterator[None]:
    from httpx2 import HTTPError
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except (HTTPError, RuntimeError) as error:
        # The library wraps what befalls a large file.
        answer = getattr(error, "response", getattr(error.__cause__, "response", None))
        if answer is None:
            raise PoolUnreachableError(f"{repository}: no answer: {error}") from error
        status = answer.status_code
        raise answer_error(f"the hub of {repository}", status, "", "hf auth login") from error
    except HFValidationError as error:
        raise InvalidInputError(f"{repository}: {error}") from error
