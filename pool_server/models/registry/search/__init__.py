"""Finding versions among very many: terms, text, ranges, order, facets."""
