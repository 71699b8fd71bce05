"""Images in, face boxes and landmarks out."""
