"""Settings of a pool server: from code, from the environment (``POOL_SERVER_...``), or a file.

The file is TOML, one ``field = value`` a line; ``POOL_SERVER_CONFIG`` names it. The environment
counts for more than the file, and code for more than both.
"""

import ipaddress
import os
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

MIB = 1024 * 1024
GIB = 1024 * MIB

ENVIRONMENT_PREFIX = "POOL_SERVER_"
CONFIG_VARIABLE = "POOL_SERVER_CONFIG"


def setting_name(field: str) -> str:
    """Return the name of a setting for a message, as it is spelt where it was set.

    That is the file (``s3_bucket in /etc/poolctl.toml``) unless the environment sets it, too; the
    variable of the environment where nothing sets it.
    """
    variable, file = f"{ENVIRONMENT_PREFIX}{field.upper()}", os.environ.get(CONFIG_VARIABLE, "")
    if not file or variable in os.environ:
        return variable
    try:
        said = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return variable
    return f"{field} in {file}" if field in said else variable


def default_data_folder() -> Path:
    """Return a pool's default data folder."""
    return user_data_path("poolctl", appauthor=False) / "pool"


def is_this_machine(host: str) -> bool:
    """Return whether only this machine reaches an address to listen on."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_SITE = r"^[a-z0-9][a-z0-9._-]{0,63}$"


class EntryRule(BaseModel):
    """Let in everybody with this claim at a provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: str = Field(min_length=1)
    value: str = Field(min_length=1, description="The claim's whole value, or one of its list.")
    site: str = Field(pattern=_SITE)
    role: Literal["viewer", "contributor", "curator", "admin"] = "contributor"


class SignOnProvider(BaseModel):
    """An OpenID provider by which people log in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$", description="Part of addresses.")
    label: str = Field(min_length=1, max_length=80, description="For people, on the button.")
    issuer: str = Field(max_length=255, description="As the provider's own description spells it.")
    client_id: str = Field(min_length=1)
    client_secret: SecretStr = Field(min_length=1)
    scope: str = Field(default="openid email profile", pattern=r"^openid( [!-~]+)*$")
    rules: tuple[EntryRule, ...] = Field(
        default=(), description="Rules of entry without an invitation; the first that fits counts."
    )
    valid_hours: int = Field(
        default=24,
        ge=1,
        le=30 * 24,
        description="Time after a log-in, or a renewal, until the person's sessions and tokens "
        "are refused. Above 24, a leaver keeps access for longer than a day.",
    )
    renew: bool = Field(
        default=False,
        description="Whether the pool confirms accounts by refresh tokens. Only for providers "
        "that end refresh tokens with the account.",
    )

    @field_validator("issuer")
    @classmethod
    def _encrypted(cls, issuer: str) -> str:
        """Return an address with TLS; without it only on this machine, for trials."""
        url = urlsplit(issuer)
        is_trial = url.scheme == "http" and is_this_machine(url.hostname or "")
        is_bare = bool(url.hostname) and not (url.query or url.fragment or url.username)
        if not is_bare or (url.scheme != "https" and not is_trial):
            raise ValueError(f"{issuer!r} is not an https address without query and name")
        return issuer


class PoolSettings(BaseSettings):
    """All that can be set; every field is also read from ``POOL_SERVER_<FIELD>``, or from a file.

    Sizes are in bytes, times in seconds unless the name says otherwise.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        frozen=True,
        extra="forbid",
        # The rejected value may hold a password.
        hide_input_in_errors=True,
    )

    data_folder: Path = Field(
        default_factory=default_data_folder,
        validate_default=True,
        description="Database, model files and backups.",
    )
    database_url: SecretStr = Field(
        default=SecretStr(""),
        description="postgresql://USER:PASSWORD@HOST/DATABASE, for any number of server processes; "
        "SQLite in the data folder, for one, where it is empty.",
    )
    database_connections: int = Field(
        default=20, ge=2, description="Most connections to PostgreSQL that one process opens."
    )
    storage: Literal["folder", "s3"] = Field(
        default="folder",
        description="Where model files lie: in the data folder, or in a bucket of an S3 server.",
    )
    s3_bucket: str = Field(default="", description="The bucket; it must be there.")
    s3_prefix: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]*$",
        description="Start of the keys of all objects, for a bucket with other content.",
    )
    s3_endpoint_url: str = Field(
        default="", description="Address of the S3 server; Amazon's own where it is empty."
    )
    s3_public_endpoint_url: str = Field(
        default="",
        description="Address under which the sites reach the S3 server, where it is another one.",
    )
    s3_region: str = Field(default="", description="Region; boto3's own choice where it is empty.")
    s3_addressing_style: Literal["auto", "path", "virtual"] = Field(
        default="auto", description="Whether the bucket is part of the path or of the host name."
    )
    s3_access_key_id: SecretStr = Field(
        default=SecretStr(""),
        description="Both keys empty: boto3's own sources (environment, files, roles).",
    )
    s3_secret_access_key: SecretStr = SecretStr("")
    s3_least_part_bytes: int = Field(
        default=5 * MIB, ge=1, description="Smallest part, but the last, that the S3 server takes."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8710, ge=0, le=65535, description="0 lets the system choose.")
    tls_certificate: Path | None = Field(
        default=None, description="PEM file of the server's certificate and those that signed it."
    )
    tls_key: Path | None = Field(default=None, description="PEM file of the certificate's key.")
    self_signed: bool = Field(
        default=False,
        description="TLS by a certificate that the pool makes itself, once, in its data folder.",
    )

    max_model_bytes: int = Field(default=8 * GIB, ge=1, description="Largest model accepted.")
    part_bytes: int = Field(
        default=16 * MIB,
        ge=1,
        description="Size of one part of an upload; up to four times that for large files, and "
        "more where they would be more than 1000.",
    )
    max_request_bytes: int = Field(
        default=2 * MIB, ge=1024, description="Largest request body other than a part."
    )
    stall_timeout_s: float = Field(
        default=30,
        gt=0,
        description="A client is given up that takes longer for the head of a request, for the "
        "next 16 kB of its body, or for reading on in an answer.",
    )
    max_open_uploads_per_site: int = Field(default=100, ge=1)
    upload_lifetime_s: int = Field(
        default=24 * 3600, ge=1, description="Uploads without a new part for this time are stale."
    )

    tries_per_minute: int = Field(
        default=60,
        ge=1,
        description="For each server process: refused tokens and tried invitations from one "
        "address, tokens and invitations made with one token.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks of reverse proxies, with commas between them. Only "
        "these are believed about the address that a request came from.",
    )

    default_visibility: Literal["private", "sites", "consortium"] = Field(
        default="consortium", description="Readers of a new model, unless its uploader names them."
    )
    default_rights: str = Field(
        default="download,merge",
        pattern="^((download|merge|redistribute)(,(download|merge|redistribute))*)?$",
        description="Acts allowed to readers of a new model, beyond seeing it.",
    )

    check_memory_bytes: int = Field(
        default=4 * GIB, ge=64 * MIB, description="Memory of the format check, added to its model."
    )
    check_time_s: float = Field(default=180, gt=0, description="Time limit of the format check.")
    lease_s: float = Field(
        default=30,
        ge=3,
        description="A check or merge is taken over by another process after its own was "
        "silent for this long.",
    )
    poll_interval_s: float = Field(
        default=1.0, gt=0, description="How often a process looks for merges that others left."
    )

    central_merges: bool = Field(
        default=True, description="Whether sites may have the pool merge for them."
    )
    max_open_merges_per_site: int = Field(default=20, ge=1)
    merge_input_bytes: int = Field(
        default=16 * GIB, ge=1, description="All inputs of one merge together."
    )
    merge_memory_bytes: int = Field(
        default=4 * GIB, ge=64 * MIB, description="Memory of a merge, added to its models."
    )
    merge_time_s: float = Field(default=3600, gt=0, description="Time limit of a merge.")

    require_signatures: bool = Field(
        default=False, description="Whether versions without a site's signature are refused."
    )
    key_role: Literal["contributor", "admin"] = Field(
        default="contributor", description="Least role that may register its site's keys."
    )

    curated: bool = Field(
        default=False,
        description="Whether uploads of others than the pool's curators wait as drafts until a "
        "curator publishes them. Of rounds that follow each other only the last result waits: "
        "the sites go on with the others.",
    )

    sign_on: tuple[SignOnProvider, ...] = Field(
        default=(), description="OpenID providers by which people log in; none: tokens only."
    )

    graceful_stop_s: int = Field(
        default=30, ge=1, description="Time that requests under way have to finish at a stop."
    )
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    log_requests: bool = Field(
        default=False, description="Whether each request is a line in the log; faults always are."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Of lines in the log: for people, or one JSON object each."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings, the strongest first."""
        file = os.environ.get(CONFIG_VARIABLE, "")
        if not file:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file))

    @field_validator("data_folder")
    @classmethod
    def _absolute(cls, folder: Path) -> Path:
        # The format check runs in another working directory.
        return folder.expanduser().absolute()

    @field_validator("sign_on")
    @classmethod
    def _distinct(cls, providers: tuple[SignOnProvider, ...]) -> tuple[SignOnProvider, ...]:
        """Return providers with names and issuers of their own: people are known by the issuer."""
        for field in ("name", "issuer"):
            if len({getattr(provider, field) for provider in providers}) < len(providers):
                raise ValueError(f"two providers have the same {field}")
        return providers

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        """Return valid addresses and networks, with commas between them."""
        networks = [network.strip() for network in text.split(",") if network.strip()]
        for network in networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ValueError(
                    f"{network!r} is not an address or network, such as 10.0.0.0/8"
                ) from error
        return ",".join(networks)

    @field_validator("database_url")
    @classmethod
    def _normalise_address(cls, address: SecretStr) -> SecretStr:
        """Return the address with its driver; errors never repeat it, as it holds a password."""
        if not address.get_secret_value():
            return address
        expected = "expected postgresql://USER:PASSWORD@HOST/DATABASE"
        try:
            url = make_url(address.get_secret_value())
        except (ArgumentError, ValueError):
            raise ValueError(f"{expected}; special characters in it as %XX") from None
        if url.drivername not in {"postgresql", "postgres", "postgresql+psycopg"}:
            raise ValueError(f"{expected}, found {url.drivername}://...")
        if not url.database:
            raise ValueError(f"{expected}, found no name of a database")
        url = url.set(drivername="postgresql+psycopg")
        return SecretStr(url.render_as_string(hide_password=False))

    @property
    def database_file(self) -> Path:
        return self.data_folder / "pool.sqlite3"

    @property
    def uses_postgresql(self) -> bool:
        """True if several server processes may share the database."""
        return bool(self.database_url.get_secret_value())

    @property
    def engine_url(self) -> URL:
        """The address of the database, with the password; `str()` of it hides that."""
        if self.uses_postgresql:
            return make_url(self.database_url.get_secret_value())
        return URL.create("sqlite", database=str(self.database_file))

    @property
    def database_place(self) -> str:
        """The place of the database, for people: without password and options."""
        if not self.uses_postgresql:
            return str(self.database_file)
        url = self.engine_url
        # A path of a socket stands in the query; nothing else of that is shown.
        host = url.host or url.query.get("host", "")
        port = f":{url.port}" if url.port else ""
        return f"postgresql://{url.username or ''}@{host}{port}/{url.database}"

    @property
    def speaks_tls(self) -> bool:
        """True if the server itself encrypts, without a proxy."""
        return self.self_signed or self.tls_certificate is not None or self.own_certificate.exists()

    @property
    def own_certificate(self) -> Path:
        """The certificate of `self_signed`; once there, the pool never falls back to clear text."""
        return self.data_folder / "certificate.pem"

    @property
    def first_token_file(self) -> Path:
        """For the first admin's token where no terminal shows it."""
        return self.data_folder / "first-token"

    @property
    def storage_folder(self) -> Path:
        return self.data_folder / "storage"

    @property
    def scratch_folder(self) -> Path:
        """For files read once; leftovers of a killed process are removed."""
        return self.data_folder / "scratch"

    @property
    def backup_folder(self) -> Path:
        return self.data_folder / "backups"

    @property
    def lock_file(self) -> Path:
        return self.data_folder / "server.lock"

    @property
    def rights_of_new_models(self) -> list[str]:
        return sorted(set(filter(None, self.default_rights.split(","))))

    @property
    def upload_lifetime(self) -> timedelta:
        return timedelta(seconds=self.upload_lifetime_s)
