"""Reading what was done in the pool, by whom, and when."""
