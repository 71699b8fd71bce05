"""Invitations: how people become users of a site."""
