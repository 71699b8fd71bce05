"""Versions on their way between pools: on hubs, in registries and in folders."""
