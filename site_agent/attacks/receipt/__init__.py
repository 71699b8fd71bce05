"""The privacy receipt: a site's measurements of the leakage from an artifact that it sends.

One attack a line, the worst first, each with chance and with a control that was made to leak.
"""
