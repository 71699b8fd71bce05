"""``poolctl privacy``."""
