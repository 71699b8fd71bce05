"""The study of split training: errors on persons left out, and what smashed data show.

`protocol` lists the runs and does one, `conducting` does those that are missing and writes the
tables.
"""

from __future__ import annotations

from site_agent.studies.split.conducting import conduct_split_study
from site_agent.studies.split.protocol import SplitRun, SplitStudySettings, list_runs, make_settings

__all__ = ["SplitRun", "SplitStudySettings", "conduct_split_study", "list_runs", "make_settings"]
