"""The secure sum: what labs and aggregation servers do; see the README of this folder."""
