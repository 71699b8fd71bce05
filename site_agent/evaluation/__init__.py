"""Scores of detectors, landmark models and gaze networks on annotated data."""

from __future__ import annotations

from site_agent.evaluation.detection import DetectionScores, evaluate_detector
from site_agent.evaluation.gaze import GazeScores, evaluate_networks
from site_agent.evaluation.landmark_scores import LandmarkScores, Normaliser, normaliser_for
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import (
    EvaluationSettings,
    evaluate_model,
    evaluate_models,
)
from site_agent.evaluation.report import ScoredModel, write_report

__all__ = [
    "DetectionScores",
    "EvaluationSettings",
    "GazeScores",
    "LandmarkScores",
    "Normaliser",
    "ScoredModel",
    "evaluate_detector",
    "evaluate_landmarks",
    "evaluate_model",
    "evaluate_models",
    "evaluate_networks",
    "normaliser_for",
    "write_report",
]
