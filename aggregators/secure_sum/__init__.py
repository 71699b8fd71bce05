"""The arithmetic of the secure sum: encoding, field, shares, checks. Randomness is an argument.

A lab's contribution is encoded as numbers of a prime field (`layout`), split into one share for
each aggregation server, and checked without being opened (`sharing`).
"""
