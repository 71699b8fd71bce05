"""Training of sub-models through dlib."""

from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings, train_ert, unlearnable_boxes
from site_agent.training.hog_svm import train_hog_svm
from site_agent.training_record import TrainingRecord, TrainingResult, read_training_metadata

__all__ = [
    "ErtSettings",
    "HogSvmSettings",
    "TrainingRecord",
    "TrainingResult",
    "read_training_metadata",
    "train_ert",
    "train_hog_svm",
    "unlearnable_boxes",
]
