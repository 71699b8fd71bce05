"""From a video to blinks, one stage a module."""
