"""Sites, what they may take up, and who one is."""
