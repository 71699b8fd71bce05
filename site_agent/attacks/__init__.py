"""Attacks that measure how much federated training reveals about the people in the pictures.

All run at home, on the site's own or on drawn data. Each is a function of plain data: the leaked
networks, samples with gaze, and the attacker's additional knowledge.
"""
