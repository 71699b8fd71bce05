"""Networks: their architectures, their files, and running them. The door to torch.

Gaze networks take grey eye patches and head angles, and return yaw and pitch in radians, as
`site_agent.datasets.gaze.records.GazeSamples` has them. Saliency networks take clips, and return a
map of each frame. Representation networks describe eye patches by features, learned without labels.
"""
