"""``poolctl secure``: sums of updates that no server sees."""
