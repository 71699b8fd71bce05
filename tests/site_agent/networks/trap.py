"""A module that a hostile file names: importing it is the harm."""

raise RuntimeError("the code that a network's file names was run")
