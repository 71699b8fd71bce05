"""The board of the secure sum: the pool stores and passes on what it can neither read nor check."""
