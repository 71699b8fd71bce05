"""The pool: stores labelled sub-models and knows how they came about."""
