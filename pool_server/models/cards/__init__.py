"""What people should know of a model, for people and for other tools."""
