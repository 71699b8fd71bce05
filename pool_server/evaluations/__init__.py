"""How models do on the private data of the sites: scores, never data."""
