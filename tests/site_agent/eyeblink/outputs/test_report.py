"""The report: one page that needs nothing else."""

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.errors import VideoFileError
from site_agent.eyeblink.outputs.registry import OUTPUTS, BlinkOutput, write_outputs
from site_agent.eyeblink.outputs.report import report_page
from site_agent.eyeblink.records import FaceColumns
from site_agent.eyeblink.session import AnalysedSession, FileSettings

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checker(HTMLParser):
    """Follows the tags, and keeps texts, addresses and identifiers."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.identifiers: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "data", "action", "srcset", "poster"}:
                self.addresses.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


class NumberedFrames:
    """A recording with the number of each frame in its brightness, in steps of 4."""

    path = Path("numbered.mp4")

    def picture(self, frame: int) -> np.ndarray:
        return np.full((90, 120, 3), frame * 4 % 256, dtype=np.uint8)

    def close(self) -> None:
        pass


def unreadable() -> NumberedFrames:
    raise VideoFileError("numbered.mp4: is gone")


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def page(conditioned: AnalysedSession) -> str:
    return report_page(conditioned)


def test_the_page_is_one_file_and_the_same_each_time(
    conditioned: AnalysedSession, page: str
) -> None:
    parsed = checked(page)
    assert "script" not in parsed.tags
    assert "link" not in parsed.tags
    assert all(address.startswith("#") for address in parsed.addresses)
    assert {address[1:] for address in parsed.addresses} <= set(parsed.identifiers)
    # The heat map is a picture within the page, whose letters are no addresses.
    within = r'xmlns(:xlink)?="[^"]*"|"data:image/png;base64,[^"]*"'
    elsewhere = re.sub(within, "", page)
    assert not re.search(r"(?i)(https?:)?//[a-z]|@import|url\((?!#)", elsewhere)
    assert len(parsed.identifiers) == len(set(parsed.identifiers))
    drawn = [re.sub(r"analysed \S+ \S+", "", html) for html in (page, report_page(conditioned))]
    assert drawn[0] == drawn[1]
    assert not re.search(r"\bnan\b|\binf\b|None\b", " ".join(parsed.texts))


def test_figures_have_the_colours_of_the_page_in_both_themes(page: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert figures
    for figure in figures:
        assert not re.search(r": #[0-9a-f]{6}", figure), "a colour of its own"
        names = set(re.findall(r"var\((--\w+), #", figure))
        assert {"--ink", "--paper"} <= names
        assert all(page.count(f"{name}: #") >= 2 for name in names), "in light and dark"


def test_the_page_shows_the_results(conditioned: AnalysedSession, page: str) -> None:
    text = " ".join(checked(page).texts)
    assert conditioned.conditioning is not None
    summary = conditioned.conditioning.summary
    assert f"CRs: {summary.n_cr} of {summary.n_cs_valid} trials" in text
    for row in conditioned.conditioning.sensitivity:
        assert row.criterion in text
    assert f"{len(conditioned.blinks)} blinks and closures" in text
    assert "0" * 64 in text
    assert "a &lt;warning&gt; &amp; more" in page
    assert "name &lt;of&gt; a &amp; b.csv" in page
    assert "<warning>" not in page


def test_a_page_without_trials_and_calibration(conditioned: AnalysedSession, page: str) -> None:
    assert "FEC (not calibrated)" not in page
    doubtful = replace(conditioned.calibration, reliable=False)
    other = report_page(replace(conditioned, calibration=doubtful, conditioning=None, warnings=()))
    assert "FEC (not calibrated)" in other
    assert "FEC IS NOT CALIBRATED" in other
    assert "conditioning" not in checked(other).identifiers
    assert "No warnings" in other


def test_a_failing_output_is_a_warning(
    conditioned: AnalysedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: AnalysedSession, path: Path) -> None:
        path.write_text("half")
        raise ZeroDivisionError("no <reason>")

    failing = BlinkOutput("failing", "failing.html", fail)
    written = write_outputs(conditioned, tmp_path / "out", outputs=(failing, *OUTPUTS))
    assert "failing" not in written.files
    assert not (tmp_path / "out" / "failing.html").exists()
    assert written.warnings[-1] == "failing.html was not written: no <reason>"
    assert "no &lt;reason&gt;" in written.files["report"].read_text(encoding="utf-8")
    assert "no <reason>" in written.files["session"].read_text(encoding="utf-8")
    assert "no <reason>" in written.files["provenance"].read_text(encoding="utf-8")


def test_each_blink_is_shown_at_onset_peak_and_offset(conditioned: AnalysedSession) -> None:
    count = len(conditioned.trace.frames)
    places = np.tile([60.0, 40.0, 50.0], (count, 1))
    places[::7] = np.nan
    face = FaceColumns(np.zeros((count, 4)), np.zeros(count), np.zeros(count, np.uint8), places)
    session = replace(
        conditioned, trace=replace(conditioned.trace, face=face), pictures=NumberedFrames
    )
    strips = re.findall(r'class="eyes" src="data:image/jpeg;base64,([^"]+)"', report_page(session))
    assert len(strips) == len(session.blinks)
    for blink, text in zip(session.blinks, strips, strict=True):
        strip = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
        shown = [part.mean() / 4 for part in np.array_split(strip, 3, axis=1)]
        frames = (blink.onset_frame, blink.peak_frame, blink.offset_frame)
        assert shown == pytest.approx([frame % 64 for frame in frames], abs=0.5)
    settings = replace(session.settings, files=FileSettings(eye_pictures=False))
    for without in (replace(session, settings=settings), replace(session, pictures=unreadable)):
        assert "eye_pictures" not in report_page(without).split("Every setting")[0]
        assert 'class="eyes"' not in report_page(without)
