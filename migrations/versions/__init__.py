"""The baseline, then one module for each change of the schema, in the order of their numbers."""
