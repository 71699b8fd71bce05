"""The study of split training: errors on persons left out, and what smashed data show."""
