"""Attacks that measure what federated training reveals of the people whose pictures trained.

All run at home, on one's own or on drawn data. Each is a function of plain data: the networks
that leaked, samples with gaze, and what an attacker may know besides.
"""
