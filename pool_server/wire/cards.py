"""Cards, which describe a model for people (Markdown with YAML in front), and privacy receipts.

The front matter has the layout of Hugging Face model cards (https://huggingface.co/docs/hub/
model-cards, ``modelcard.md`` in huggingface/hub-docs), so that their tools read it: ``license``,
``library_name``, ``pipeline_tag``, ``tags``, ``base_model``, ``metrics``, ``model-index``. Data
without a place in that layout stand under ``poolctl``.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.evaluations import Score
from pool_server.wire.names import Digest, FiniteFloat, ItemList, Line, RequestModel
from pool_server.wire.signatures import SignedStatement

MOST_CARD_CHARACTERS = 200_000
MOST_FRONT_MATTER_CHARACTERS = 64_000
MOST_NODES = 5_000
DEEPEST = 12
_FENCE = "---"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ODD_LINE_END = re.compile("[\x85\u2028\u2029\ufeff]")

CardText = Annotated[str, StringConstraints(max_length=MOST_CARD_CHARACTERS, pattern=r"^[^\x00]*$")]


class CardRequest(RequestModel):
    """Write the card of a version."""

    text: CardText = Field(description="Markdown, with YAML between `---` lines in front or none.")
    statement: SignedStatement | None = Field(
        default=None, description="A new signature; required if the version is signed."
    )


class CardResponse(BaseModel):
    """The card of a version."""

    address: str
    written: bool = Field(
        description="False if the pool generated the card because nobody wrote one."
    )
    text: str = Field(description="With front matter, which the pool adds if it is missing.")
    source: str = Field(description="As it was written; empty if nobody wrote one.")
    front_matter: dict[str, Any] = Field(description="The parsed YAML front matter.")


@dataclass(frozen=True)
class Card:
    """A parsed card: the front matter as JSON-compatible data, and the Markdown after it."""

    front_matter: Mapping[str, Any]
    body: str


def read_card(text: str) -> Card:
    """Parse a card and ensure that its front matter is harmless, else raise `ValueError`.

    Only plain values are made from the YAML: no tags, no anchors (which could blow a few lines up
    to gigabytes), nothing deeper or longer than any real card.
    """
    if len(text) > MOST_CARD_CHARACTERS:
        raise ValueError(
            f"the card has {len(text):,} characters; expected at most {MOST_CARD_CHARACTERS:,}"
        )
    lines = _LINE.findall(text.removeprefix("\ufeff"))
    if not lines or lines[0].rstrip() != _FENCE:
        return Card({}, text)
    ends = [number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE]
    if not ends:
        raise ValueError("the card begins with '---' in line 1, but no second '---' ends that part")
    front = "".join(lines[1 : ends[0]])
    if len(front) > MOST_FRONT_MATTER_CHARACTERS:
        raise ValueError(
            f"the part between '---' has {len(front):,} characters; expected at most "
            f"{MOST_FRONT_MATTER_CHARACTERS:,}"
        )
    return Card(_read_yaml(front), "".join(lines[ends[0] + 1 :]))


def write_card(front_matter: Mapping[str, Any], body: str) -> str:
    """Return a card with this front matter; `read_card` returns both parts."""

    def represent(dumper: Any, text: str) -> Any:
        # Unicode has further line ends; unquoted they would be parsed as plain ones.
        style = '"' if _ODD_LINE_END.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    # A separate class, so that the library's own dumper stays unchanged.
    dumper: Any = type("CardDumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, represent)
    front = yaml.dump(
        dict(front_matter),
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return f"{_FENCE}\n{front}{_FENCE}\n{body}"


def _read_yaml(front: str) -> dict[str, Any]:

    try:
        _require_plain(front)
        content = yaml.safe_load(front)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Line 1 of the card is the fence.
        line = f"line {mark.line + 2}" if mark else "the part between '---'"
        raise ValueError(
            f"{line} of the card is no YAML: {error.problem or error.context}"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"the part between '---' is no YAML: {error}") from error
    except (ValueError, OverflowError) as error:  # a date such as 2026-99-99
        raise ValueError(f"the part between '---' of the card: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(
            f"the part between '---' is a {type(content).__name__}; expected 'key: value' lines"
        )
    plain = _plain(content)
    assert isinstance(plain, dict)
    return plain


def _require_plain(front: str) -> None:
    """Reject anchors, tags, and excessive depth or length before anything is built."""
    depth = 0
    for number, event in enumerate(yaml.parse(front, Loader=yaml.SafeLoader)):
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(f"line {line}: anchors and aliases (&, *) are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent) and str(getattr(event, "tag", None) or "") not in {
            "",
            "!",
        }:
            raise ValueError(f"line {line}: tags (!) are not allowed")
        if depth > DEEPEST:
            raise ValueError(f"line {line}: more than {DEEPEST} levels deep")
        if number > MOST_NODES:
            raise ValueError(f"line {line}: more than {MOST_NODES:,} entries")


def _plain(value: object) -> object:
    """Return a JSON-compatible value; keys and dates become text."""
    if isinstance(value, Mapping):
        return {_whole(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, bytes):
        raise ValueError("binary values are not allowed")
    is_odd_float = isinstance(value, float) and not math.isfinite(value)
    is_large = isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63
    return str(value) if is_odd_float or is_large else value


def _whole(text: str) -> str:
    """Return text that can be sent: YAML may contain half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(f"{code} is half of a character; expected the character itself") from error
    return text


ReceiptMode = Literal["sub-model", "leaf-sums", "update", "secure-sum", "smashed-data"]
MODES: tuple[ReceiptMode, ...] = get_args(ReceiptMode)
MOST_ATTACKS = 32
LEAST_CONTROL = 0.95
"""An attack that scores less than this on a deliberately leaking artifact proves nothing."""
_HIGH, _UNCLEAR, _WIDER = 0.5, 0.25, 1.5

Level = Literal["high", "some", "unclear", "none found", "not judged"]

ShortLine = Annotated[Line, StringConstraints(min_length=1, max_length=100)]
Sentence = Annotated[Line, StringConstraints(max_length=600)]


class AttackFinding(RequestModel):
    """The result of one attack; higher is worse."""

    name: ShortLine
    measure: ShortLine
    found: Score
    chance: FiniteFloat | None = None
    """Score of the attack if nothing leaks."""
    control: Score | None = None
    """Score of the attack on an artifact that was made to leak."""
    needs: Sentence = ""
    """The attacker's knowledge besides the artifact."""
    note: Sentence = ""
    reveals: Literal["", "membership", "persons", "pictures", "landmarks", "base"] = Field(
        default="",
        description="The knowledge gained by an attacker; empty for facts that are no attack.",
    )

    @property
    def is_attack(self) -> bool:
        """Return whether this is an attack and not a fact for comparison."""
        return bool(self.reveals) or self.control is not None

    @property
    def is_judged(self) -> bool:
        """True if the attack succeeds on the positive control, so that its score has a meaning."""
        return (
            self.chance is not None
            and self.control is not None
            and self.control.value >= LEAST_CONTROL
        )

    @property
    def share(self) -> float:
        """The attack's progress from chance (0) to certainty (1); 0 if chance explains it.

        A receipt has about 16 attacks, so intervals of 95 % count half as wide again (Bonferroni):
        one receipt in 20 then errs.
        """
        if self.chance is None or self.chance >= 1:
            return 0.0
        above = self.found.value - self.chance
        low = self.found.value if self.found.low is None else self.found.low
        # Chance reads no picture at all, so each one counts.
        certain = self.chance == 0 or above > _WIDER * (self.found.value - low)
        return self.seen_share if certain else 0.0

    @property
    def seen_share(self) -> float:
        """The share without regard to its uncertainty."""
        if self.chance is None or self.chance >= 1:
            return 0.0
        return max(0.0, min(1.0, (self.found.value - self.chance) / (1 - self.chance)))


class EpsilonBounds(RequestModel):
    """The bounds on epsilon of the training that made an artifact."""

    unit: Literal["sample", "person"] = Field(description="Unit that epsilon is about.")
    delta: FiniteFloat = Field(ge=0, lt=1)
    at_most: FiniteFloat | None = Field(
        default=None, ge=0, description="By the accountant; null without differential privacy."
    )
    at_least: FiniteFloat = Field(ge=0, description="By the best attack, at 95 % confidence.")
    attack: Annotated[Line, StringConstraints(max_length=100)] = ""

    @property
    def sentence(self) -> str:
        """Return both bounds as a sentence."""
        above = "not bounded above" if self.at_most is None else f"at most {self.at_most:g}"
        below = f"at least {self.at_least:g} by {self.attack}" if self.at_least else "at least 0"
        return (
            f"Epsilon of a {self.unit} at delta {self.delta:g}: {above}, {below} "
            "(an audit of the same training, 95 % confidence)."
        )


class PrivacyReceipt(RequestModel):
    """The findings of attacks on one artifact, with the verdict that follows from the worst.

    Readers always derive verdict and level from the attacks, regardless of the file's values.
    """

    verdict: Sentence = Field(default="", description="The answer; derived from the attacks.")
    level: Level = Field(default="not judged", description="Derived from the attacks.")
    protection: Sentence = "No differential privacy: no bound on what other attacks find."
    format: Literal["poolctl-privacy-receipt/1"] = "poolctl-privacy-receipt/1"
    bounds: EpsilonBounds | None = Field(
        default=None, description="Of networks' updates and their sums: both bounds on epsilon."
    )
    measured_on: date | None = Field(default=None, description="Day of the measurement.")
    mode: ReceiptMode
    artifact_digest: Digest = Field(description="SHA-256 of the file that was attacked.")
    what_left: Sentence
    attacker: Sentence = Field(description="The assumed attacker and means.")
    attacks: list[AttackFinding] = Field(min_length=1, max_length=MOST_ATTACKS)
    persons: int = Field(ge=1, le=10**9)
    samples: int = Field(ge=1, le=10**9)
    held_out_persons: int = Field(ge=1, le=10**9)
    held_out_samples: int = Field(ge=1, le=10**9)
    seed: int = Field(ge=0, lt=2**53)
    seconds: FiniteFloat = Field(ge=0)
    compute: Sentence
    measured_by: Literal["the site itself"] = "the site itself"

    @property
    def advice(self) -> str:
        """The remedies of a leak; empty where none was found."""
        if self.level not in {"high", "some"}:
            return ""
        return f"To leak less: {_ADVICE[self.mode]}."

    @model_validator(mode="after")
    def _judge(self) -> "PrivacyReceipt":
        self.attacks.sort(
            # With few persons, every second attack on persons gets far from chance.
            key=lambda finding: (
                not finding.is_judged,
                -finding.share,
                finding.reveals == "persons",
                -finding.seen_share,
            )
        )
        self.level, self.verdict = _verdict(self)
        return self


_ADVICE: dict[ReceiptMode, str] = {
    "sub-model": "train with more faces of more persons, or share the model with fewer sites "
    "(poolctl models share)",
    "leaf-sums": "contribute with more faces, ask for more of them for each leaf "
    "(--set faces_per_leaf=4), or contribute to secure rounds only (--set secure_only=true)",
    "update": "train with more samples of more persons, contribute to secure rounds only "
    "(--set secure_only=true), or with differential privacy (--option dp_epsilon=8 of 'rounds "
    "start')",
    "secure-sum": "sum over more sites, or with differential privacy (--option dp_epsilon=8 of "
    "'rounds start')",
    "smashed-data": "cut the network deeper, or train with differential privacy",
}


def _verdict(receipt: PrivacyReceipt) -> tuple[Level, str]:
    judged = [finding for finding in receipt.attacks if finding.is_judged]
    tried = [
        finding for finding in receipt.attacks if finding.is_attack and finding.reveals != "base"
    ]
    if not judged:
        return "not judged", (
            "No attack could be judged: none found what a positive control was made to show."
        )
    worst, how = judged[0], "" if judged[0].share >= _HIGH else "better than by chance "
    figures = f"({worst.name}: {score_text(worst.found)}, chance {worst.chance:.2f})"
    if not worst.share and worst.reveals != "persons" and worst.seen_share >= _UNCLEAR:
        return "unclear", (
            f"{receipt.samples} samples and {receipt.held_out_samples} held-out ones are too few "
            f"to say whether an attack did better than chance {figures}."
        )
    if not worst.share:
        judged = [finding for finding in judged if finding.reveals != "base"]
        of_all = "" if len(judged) == len(tried) else f" that could be judged ({len(tried)} tried)"
        return "none found", (
            f"None of {len(judged)} attacks{of_all} did better than chance. Others may find more."
        )
    faces = receipt.mode in {"sub-model", "leaf-sums"}
    one, many = ("a picture of a face", "faces") if faces else ("a picture of an eye", "pictures")
    sentences = {
        "membership": f"Anyone with {one} can tell {how}that it was among the "
        f"{receipt.samples} training {many}",
        "persons": f"Anyone with pictures of a person can tell {how}that the person is one of the "
        f"{receipt.persons} whose {many} trained",
        "pictures": f"Any reader of this file can see {worst.found.value:.0%} of the "
        f"{receipt.samples} training {many}",
        "landmarks": f"Any reader of this file can place landmarks of the training faces {how}"
        "without a picture",
        "base": "The base of this contribution was not made by training: such bases are built to "
        "read pictures",
    }
    if receipt.mode == "smashed-data":
        sentences["persons"] = (
            f"Any receiver of the smashed data can tell {how}whose eyes they show"
        )
        sentences["pictures"] = (
            f"Any receiver of the smashed data can draw the {receipt.samples} eyes, "
            f"{worst.found.value:.0%} of the way from the mean eye to the truth"
        )
    plain = f"This file shows {how}what the attack looks for"
    return "high" if worst.share >= _HIGH else "some", (
        f"{sentences.get(worst.reveals, plain)} {figures}."
    )


ReceiptPage = ItemList[PrivacyReceipt]


def receipt_lines(receipt: PrivacyReceipt) -> tuple[list[str], list[list[str]]]:
    """Return sentences with the verdict first, and rows: attack, score, chance, control.

    A row fits a terminal of 80 columns.
    """
    rows = []
    for finding in receipt.attacks:
        control = "" if finding.control is None else f"{finding.control.value:.2f}"
        if finding.is_attack and not finding.is_judged:
            control = f"{control} *".strip()
        chance = "" if finding.chance is None else f"{finding.chance:.2f}"
        rows.append([finding.name, score_text(finding.found), chance, control])
    sentences = [
        f"Leak: {receipt.level}. {receipt.verdict}",
        receipt.protection,
        *([receipt.advice] if receipt.advice else []),
        *([receipt.bounds.sentence] if receipt.bounds else []),
        f"Measured by the site itself: {receipt.mode}, sha256 {receipt.artifact_digest[:12]}.",
    ]
    if any(control.endswith("*") for *_, control in rows):
        sentences.append(
            f"* not judged: an attack counts only if its control reaches {LEAST_CONTROL:g}."
        )
    return sentences, rows


def score_text(score: Score, form: str = ".2f") -> str:
    """Return a score with its interval, usually at most 19 characters long."""
    if score.low is None or score.high is None:
        return f"{score.value:{form}}"
    return f"{score.value:{form}} ({score.low:{form}} to {score.high:{form}})"
