"""The privacy receipt: what a site measures of the leakage of something that it sends.

One attack a line, the worst first, each beside chance and beside a control that was made to leak.
"""
