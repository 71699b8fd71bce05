"""With whom a model is shared: seeing and changing it."""
