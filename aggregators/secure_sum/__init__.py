"""The arithmetic of the secure sum: field, encoding, shares, checks. Randomness is an argument.

A lab's vector is encoded as numbers of a prime field (`encoding`), split into one share for each
aggregation server (`sharing`), and checked without being opened (`checking`). `layout` says which
number stands for which parameter.
"""
