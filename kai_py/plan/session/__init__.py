"""What the actions of one cycle share."""
