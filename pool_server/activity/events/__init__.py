"""What happened in the pool that a site should hear of: a feed, and addresses that are called."""
