"""What would happen? The scheduler on a cluster in simulated time."""
