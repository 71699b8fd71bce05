"""Keys with which sites sign, and what they signed of their versions."""
