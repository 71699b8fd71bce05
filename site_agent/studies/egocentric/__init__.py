"""The study of personalised rounds: a network of one's own for each person, or one for all."""
