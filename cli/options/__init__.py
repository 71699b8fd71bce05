"""Groups of options that several commands share, and what their words mean."""
