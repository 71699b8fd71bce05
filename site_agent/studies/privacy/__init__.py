"""Studies of what a federation reveals: one set of attacks on leaks of all kinds."""
