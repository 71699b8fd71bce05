"""Files on their way into the pool: announced, received, checked, published."""
