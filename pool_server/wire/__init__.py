"""Requests and responses: all of the server that clients may import."""
