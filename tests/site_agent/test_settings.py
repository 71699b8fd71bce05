"""Settings by name: from text, from TOML, and as a file that explains itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from site_agent.datasets.synthetic.drawing import KINDS
from site_agent.errors import SettingsError
from site_agent.eyeblink.batch.sessions import LEFT_OUT
from site_agent.eyeblink.conditioning import CrRule
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.settings import (
    changed_values,
    list_settings,
    read_settings_file,
    settings_toml,
    toml_value,
    with_values,
)
from site_agent.studies.protocol_file import read_protocol
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings

ALL = [
    (BlinkAnalysisSettings(), LEFT_OUT),
    (ErtSettings(), ()),
    (HogSvmSettings(), ()),
    (read_protocol("landmarks").settings, ()),
    (read_protocol("gaze").settings, ()),
]


@pytest.mark.parametrize(("settings", "leave_out"), ALL)
def test_the_written_file_gives_the_same_settings(
    settings: Any, leave_out: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings_toml(settings, leave_out))
    assert read_settings_file(path, settings, leave_out) == settings
    assert changed_values(settings, leave_out) == {}


@pytest.mark.parametrize(
    ("settings", "leave_out"), [*ALL, *((kind.settings, ()) for kind in KINDS.values())]
)
def test_a_printed_value_is_read_from_text(settings: Any, leave_out: tuple[str, ...]) -> None:
    for name, setting in list_settings(settings, leave_out).items():
        if setting.value is not None:  # printed as a comment
            printed = {name: toml_value(setting.value)}
            assert with_values(settings, printed, leave_out) == settings, printed


@pytest.mark.parametrize(("settings", "leave_out"), ALL)
def test_every_setting_is_explained(settings: Any, leave_out: tuple[str, ...]) -> None:
    known = list_settings(settings, leave_out)
    assert [name for name, setting in known.items() if not setting.text] == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("region", "1 2 30 40", (1, 2, 30, 40)),
        ("faces.face_track", "yes", True),
        ("cr-threshold", "0.05", 0.05),
        ("cr_rule", "ur-share", CrRule.UR_SHARE),
        ("us_latency_ms", "3", 3.0),
        ("us_latency_ms", "none", None),
        ("baseline_ms", "-300,0", (-300.0, 0.0)),
    ],
)
def test_a_setting_is_read_from_text_and_written_as_it(name: str, text: str, expected: Any) -> None:
    settings = with_values(BlinkAnalysisSettings(), {name: text}, LEFT_OUT)
    values = {full: setting.value for full, setting in list_settings(settings, LEFT_OUT).items()}
    (value,) = (value for full, value in values.items() if full.endswith(name.replace("-", "_")))
    assert value == expected
    assert with_values(BlinkAnalysisSettings(), changed_values(settings, LEFT_OUT)) == settings


def test_a_window_is_a_size() -> None:
    for size in ("80x60", [80, 60]):
        settings = with_values(HogSvmSettings(), {"target_size_px": size})
        assert settings == replace(HogSvmSettings(), target_size_px=(80, 60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[faces]\nstart = 3", "there is no setting 'faces.start'; did you mean labels.start"),
        ("[faces]\nstarts = 2.5", "faces.starts is 2.5, expected a whole number"),
        ("[conditioning]\nbaseline_ms = [1.0]", "expected 2 numbers separated by commas"),
        (
            "[blinks.calibration]\nclosed_from = 'mean'",
            "blinks.calibration.closed_from is 'mean', expected",
        ),
        ("[faces", "not valid TOML"),
    ],
)
def test_a_wrong_file_names_the_setting(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.toml: ") as caught:
        read_settings_file(path, BlinkAnalysisSettings(), LEFT_OUT)
    assert message in str(caught.value)


def test_unused_settings_of_the_release_before_are_passed_over() -> None:
    printed = {"filter": {"filter": "none", "filter_ms": 120.0}, "files": {"bits": 16}}
    assert with_values(BlinkAnalysisSettings(), printed) == BlinkAnalysisSettings()
    with pytest.raises(SettingsError, match="no setting"):
        with_values(BlinkAnalysisSettings(), {"filter": {"filter": "savgol"}})
