"""Studies of models: what sub-models of several sites give, alone, merged and refined."""
