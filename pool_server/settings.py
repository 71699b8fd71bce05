"""Settings of a pool server: from the environment (``POOL_SERVER_...``) or from code."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from platformdirs import user_data_path
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024
GIB = 1024 * MIB


def default_data_folder() -> Path:
    """Return the folder in which a pool keeps everything when nothing else is said."""
    return user_data_path("poolctl", appauthor=False) / "pool"


class PoolSettings(BaseSettings):
    """All that can be set; every field is also read from ``POOL_SERVER_<FIELD>``.

    Sizes are in bytes, times in seconds unless the name says otherwise.
    """

    model_config = SettingsConfigDict(env_prefix="POOL_SERVER_", frozen=True, extra="forbid")

    data_folder: Path = Field(
        default_factory=default_data_folder,
        validate_default=True,
        description="Database, model files and backups.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8710, ge=0, le=65535, description="0 lets the system choose.")

    max_model_bytes: int = Field(default=8 * GIB, ge=1, description="Largest model accepted.")
    part_bytes: int = Field(
        default=16 * MIB, ge=1, description="Size of one part of an upload; larger for huge files."
    )
    max_parts: int = Field(default=1000, ge=1, le=10_000)
    max_request_bytes: int = Field(
        default=2 * MIB, ge=1024, description="Largest request body other than a part."
    )
    max_open_uploads_per_site: int = Field(default=100, ge=1)
    upload_lifetime_s: int = Field(
        default=24 * 3600, ge=1, description="An upload without a new part for so long is stale."
    )
    upload_memory_s: int = Field(
        default=7 * 24 * 3600, ge=1, description="How long finished uploads are remembered."
    )
    sweep_interval_s: float = Field(default=600, gt=0)

    check_memory_bytes: int = Field(
        default=4 * GIB, ge=64 * MIB, description="Memory of the format check, beside the model."
    )
    check_time_s: float = Field(default=180, gt=0, description="Time limit of the format check.")

    graceful_stop_s: int = Field(default=30, ge=1)
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("data_folder")
    @classmethod
    def _absolute(cls, folder: Path) -> Path:
        # The format check runs in another working directory.
        return folder.expanduser().absolute()

    @property
    def database_file(self) -> Path:
        return self.data_folder / "pool.sqlite3"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.database_file}"

    @property
    def storage_folder(self) -> Path:
        return self.data_folder / "storage"

    @property
    def backup_folder(self) -> Path:
        return self.data_folder / "backups"

    @property
    def lock_file(self) -> Path:
        return self.data_folder / "server.lock"

    @property
    def upload_lifetime(self) -> timedelta:
        return timedelta(seconds=self.upload_lifetime_s)

    @property
    def upload_memory(self) -> timedelta:
        return timedelta(seconds=self.upload_memory_s)
