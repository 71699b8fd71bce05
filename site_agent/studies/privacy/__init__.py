"""Studies of what a federation reveals: one set of attacks on leaks of all kinds."""

from site_agent.studies.privacy.conducting import conduct_privacy_study
from site_agent.studies.privacy.persons import PrivacySettings, make_privacy_settings

__all__ = ["PrivacySettings", "conduct_privacy_study", "make_privacy_settings"]
