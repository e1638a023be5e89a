"""What people and machines see: metrics, events, explanations, health."""
