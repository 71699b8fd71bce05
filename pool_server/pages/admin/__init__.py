"""Pages of admins and curators: what needs somebody, and whom the pool lets in."""
