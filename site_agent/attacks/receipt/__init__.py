"""The privacy receipt: what a site measures of the leakage of something that it sends.

One attack a line, the worst first, each beside chance and beside a control that was made to leak.
"""

from site_agent.attacks.receipt.findings import receipt_page
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.probing import ProbedReceipt, probe_faces, probe_gaze
from site_agent.attacks.receipt.sub_models import FaceSides, GroupOf, know_faces

__all__ = [
    "FaceSides",
    "GazeSides",
    "GroupOf",
    "ProbedReceipt",
    "know_faces",
    "probe_faces",
    "probe_gaze",
    "receipt_page",
]
