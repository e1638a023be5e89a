"""A clock and an event heap over the same cycle the live scheduler runs."""
