"""Studies of gaze networks: training alone, in one place, and federated, and hostile sites."""
