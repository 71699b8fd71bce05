"""The sites' halves of the methods of rounds of networks."""
