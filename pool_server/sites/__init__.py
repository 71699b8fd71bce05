"""Sites, their tokens, and who one is."""
