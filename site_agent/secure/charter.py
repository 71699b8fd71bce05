"""The charter of secure sums: their members, the keys of these, and the rules.

A TOML file that every lab and server accepts after comparing its digest with the others, by
telephone or in a meeting. No key is taken from anywhere else, so only the distributor of the file
could lie: two charters that agree in 16 digits were found in minutes. A party compares all 64, or
the 16 words that stand for them. The digest covers the content without the file's comments.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aggregators.errors import OptionError, first_problem
from aggregators.secure_sum.layout import MOST_BITS, BitBudget
from aggregators.whole_file import write_whole
from pool_server.wire.signatures.keys import PublicKey
from site_agent.errors import InvalidInputError
from site_agent.pool.signing import load_key
from site_agent.wording import count_words

NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
"""Names of phases, and of senders: the labs and servers that a charter lists."""

_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
# Two to the power of a larger number would take all memory, and that before anything is compared.
_Bits = Annotated[int, Field(ge=0, le=MOST_BITS)]
_Hours = Annotated[float, Field(gt=0, le=24 * 365)]


class Member(BaseModel):
    """A lab or server and its Ed25519 key, in base64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    key: str

    @cached_property
    def public(self) -> PublicKey:
        """The key itself."""
        return PublicKey.from_text(self.key)

    @model_validator(mode="after")
    def _check_key(self) -> "Member":
        assert self.public
        return self


class CharterTerms(BaseModel):
    """The content of a charter's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    least_labs: int = Field(ge=3, le=1024, description="Fewer labs are not summed.")
    challenges: int = Field(default=3, ge=1, le=8, description="An alteration passes with p^-K.")
    fraction_bits: _Bits = 24
    magnitude_bits: _Bits = 8
    weight_bits: _Bits = 16
    lab_bits: _Bits = 10
    lab_hours: _Hours = 48
    server_hours: _Hours = 24
    servers: tuple[Member, ...] = Field(min_length=2, max_length=16)
    labs: tuple[Member, ...] = Field(min_length=3, max_length=1024)
    study: dict[str, Any] = {}
    """The design of a joint study, where the charter is of one; see `site_agent.joint_study`."""

    @model_validator(mode="after")
    def _check_members(self) -> "CharterTerms":
        members = [*self.servers, *self.labs]
        for values in ([member.name for member in members], [member.key for member in members]):
            if len(set(values)) != len(values):
                raise ValueError("two members share a name or a key")
        if len(self.labs) > 2**self.lab_bits:
            raise ValueError(f"{len(self.labs)} labs do not fit {self.lab_bits} bits")
        return self


MOST_BYTES = 1 << 20
"""The most bytes of a charter."""


@dataclass(frozen=True, eq=False)
class Charter:
    """A charter and the SHA-256 of its content, in hexadecimal."""

    terms: CharterTerms
    digest: str
    content: bytes

    @classmethod
    def parse(cls, content: bytes, source: str = "charter") -> "Charter":
        """Read the bytes of a charter's file.

        Raises `InvalidInputError`: it is not a charter; names the first wrong key.
        """
        if len(content) > MOST_BYTES:
            size = f"{len(content):,} bytes"
            raise InvalidInputError(
                f"{source} is not a charter: {size}, expected at most {MOST_BYTES:,}"
            )
        try:
            terms = CharterTerms.model_validate(tomllib.loads(content.decode()))
            _ = BitBudget(
                terms.fraction_bits, terms.magnitude_bits, terms.weight_bits, terms.lab_bits
            )
        except RecursionError as error:
            reason = "values are nested too deeply"
            raise InvalidInputError(f"{source} is not a charter: {reason}") from error
        except (ValueError, OptionError) as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
            hint = "'poolctl secure charter create' writes one"
            raise InvalidInputError(f"{source} is not a charter: {reason}; {hint}") from error
        left_out = None if terms.study else {"study"}
        return cls(terms, json_digest(terms.model_dump(mode="json", exclude=left_out)), content)

    @property
    def words(self) -> str:
        """The digest as 16 words, to be read out: proquints (Wilkerson 2009), 16 bits each."""
        raw = bytes.fromhex(self.digest)
        return " ".join(_proquint(int.from_bytes(raw[at : at + 2])) for at in range(0, 32, 2))

    @property
    def groups(self) -> str:
        """The digest in groups of four digits."""
        return " ".join(self.digest[at : at + 4] for at in range(0, 64, 4))

    @property
    def budget(self) -> BitBudget:
        """The use of the bits of the field."""
        terms = self.terms
        return BitBudget(
            terms.fraction_bits, terms.magnitude_bits, terms.weight_bits, terms.lab_bits
        )

    @cached_property
    def servers(self) -> Mapping[str, PublicKey]:
        """The servers' keys, by name in the order of the file."""
        return {server.name: server.public for server in self.terms.servers}

    @cached_property
    def labs(self) -> Mapping[str, PublicKey]:
        """The labs' keys, by name in the order of the file."""
        return {lab.name: lab.public for lab in self.terms.labs}


def read_charter(path: Path) -> Charter:
    """Read a charter's file."""
    return Charter.parse(path.read_bytes(), str(path))


def create_charter(
    name: str, servers: Mapping[str, str], labs: Mapping[str, str], **rules: Any
) -> Charter:
    """Return a charter of servers and labs, given as names and keys in base64.

    `rules`: Fields of `CharterTerms`, where they differ from the defaults.

    Raises `InvalidInputError`: too few members, or terms that no charter has.
    """
    for word, members, fewest in (("server", servers, 2), ("lab", labs, 3)):
        if len(members) < fewest:
            raise InvalidInputError(
                f"found {count_words(len(members), word)}, expected at least {fewest}: "
                "fewer could read single contributions"
            )
    content = {
        "name": name,
        **{
            field: info.default
            for field, info in CharterTerms.model_fields.items()
            if not info.is_required() and field != "study"
        },
        # Fewer could leave one lab alone with others that work together.
        "least_labs": max(3, -(-2 * len(labs) // 3)),
        **rules,
        "servers": [{"name": server, "key": key} for server, key in servers.items()],
        "labs": [{"name": lab, "key": key} for lab, key in labs.items()],
    }
    return Charter.parse(tomli_w.dumps(content).encode())


def accept_charter(folder: Path, charter: Charter, digest: str) -> None:
    """Record in a party's folder that it takes part under a charter.

    `digest`: As the other parties read it out: all 64 digits, or the 16 words; blanks do not
    matter.

    Raises `InvalidInputError` if the charter has another digest, or names no key of this folder.
    """
    digits = "".join(digest.lower().split())
    if digits not in (charter.digest, "".join(charter.words.split())):
        raise InvalidInputError(
            f"the charter's digest is {charter.groups} ({charter.words}), not {digest!r}; do not "
            "accept it before all parties see the same one, in all its digits or words"
        )
    keys = (load_key(folder, path.stem) for path in folder.glob("*.pem"))
    own_keys = {key.key.public.text for key in keys if key is not None}
    if not own_keys & {item.key for item in (*charter.terms.servers, *charter.terms.labs)}:
        raise InvalidInputError(
            f"the charter {charter.terms.name} names no key in {folder}",
            hint="give the key that 'poolctl secure keygen' prints here to the charter's author",
        )
    target = folder / "charters" / f"{charter.digest}.toml"
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(target, charter.content)


def require_accepted(folder: Path, digest: str, file: Path | None = None) -> Charter:
    """Return a charter that the party accepted, or raise `InvalidInputError`.

    `file`: The charter, where it is at hand.
    """
    path = folder / "charters" / f"{digest}.toml"
    if not path.is_file():
        raise InvalidInputError(
            f"the charter {digest[:16]} was not accepted here",
            hint="compare its digest with the other parties, then accept it: poolctl secure "
            f"charter accept {file or 'CHARTER.toml'} DIGEST",
        )
    charter = read_charter(path)
    if charter.digest != digest:
        raise InvalidInputError(f"{path}: the file was changed")
    return charter


def json_digest(content: Any) -> str:
    """Return the SHA-256, in hexadecimal, of plain data as canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _proquint(value: int) -> str:
    """Return 16 bits as consonant, vowel, consonant, vowel, consonant."""
    consonants, vowels = "bdfghjklmnprstvz", "aiou"
    return "".join(
        (vowels if at % 2 else consonants)[value >> shift & (3 if at % 2 else 15)]
        for at, shift in enumerate((12, 10, 6, 4, 0))
    )
