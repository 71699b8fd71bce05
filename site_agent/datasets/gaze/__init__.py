"""Eye patches with gaze: records, the layouts they are read from, checks, numbers and sheets."""
