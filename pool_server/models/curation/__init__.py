"""From draft to published and out of sight again: what curators and owners do with versions."""
