"""Models and their versions: finding and fetching them."""
