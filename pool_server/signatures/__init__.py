"""Keys of sites, and signed statements of their versions."""
