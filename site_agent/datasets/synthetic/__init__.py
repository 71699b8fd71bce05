"""Faces that the project draws itself: persons, pictures, data sets and videos.

Nobody's picture is needed to try the project out or to test it. Everything is made from numbers:
the same seed gives the same pictures, and the truth about them (landmarks, boxes, closure of the
lids, blinks) is known exactly.
"""
