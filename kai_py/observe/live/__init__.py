"""Live view of a cluster in a terminal: GPUs, queues, gangs, and events."""
