"""Studies of models: sub-models of several sites, alone, merged and refined."""
