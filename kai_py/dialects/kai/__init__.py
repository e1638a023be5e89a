"""KAI-Scheduler's API, read so that its users change nothing but the scheduler."""
