"""Pages for a browser: no script, nothing from any other host."""
