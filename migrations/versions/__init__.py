"""One module a change of the schema, in the order of their numbers."""
