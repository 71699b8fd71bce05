"""The `poolctl` command."""
