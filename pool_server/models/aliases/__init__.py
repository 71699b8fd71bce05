"""Names of versions that their site may move."""
