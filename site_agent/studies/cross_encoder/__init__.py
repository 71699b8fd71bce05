"""Studies of cross-encoders: what gaze heads from few shots are worth, on whom no site trained."""
