"""The words that labels and terms of use are made of."""
