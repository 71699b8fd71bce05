"""Training of sub-models through dlib."""
