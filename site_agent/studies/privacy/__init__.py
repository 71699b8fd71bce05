"""Studies of a federation's privacy: one set of attacks on leaks of all kinds."""
