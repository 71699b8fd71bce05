"""The board of the secure sum: the pool relays messages that it can neither read nor check."""
