"""``poolctl blink settings``, and the settings of an analysis for one recording and for many."""

from __future__ import annotations

from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import SettingsOptions
from site_agent.eyeblink.batch.settings import LEFT_OUT
from site_agent.eyeblink.session import BlinkAnalysisSettings

app = single()

ANALYSIS_SETTINGS = SettingsOptions(BlinkAnalysisSettings(), "blink settings", leave_out=LEFT_OUT)


@command(app, "settings", examples=["blink settings > settings.toml"])
def settings(_invocation: Invocation) -> Reply:
    """Print a settings file with every setting of an analysis, its default and what it does.

    Change what you need, delete the rest, and give the file to 'poolctl blink' or 'poolctl blink
    batch' with --settings. The provenance of the results has the settings under the same names.
    """
    return ANALYSIS_SETTINGS.reply()
