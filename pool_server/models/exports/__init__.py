"""Models that leave the pool: whether they may, and all that goes with them."""
