"""Training cross-encoders without labels, and gaze heads on them from few shots."""
