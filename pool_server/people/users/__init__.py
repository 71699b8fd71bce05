"""Users: the people of a site."""
