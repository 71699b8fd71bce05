"""Where models come from and what became of them."""
