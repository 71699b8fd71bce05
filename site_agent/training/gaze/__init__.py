"""Training gaze networks."""
