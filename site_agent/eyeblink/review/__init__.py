"""Looking through the blinks of a session, correcting them, and learning from it."""
