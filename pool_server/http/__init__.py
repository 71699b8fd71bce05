"""HTTP: the parts that all routes share, such as sessions, identities, errors and pages."""
