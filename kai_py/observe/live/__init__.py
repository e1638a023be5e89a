"""A live picture of a cluster in a terminal: GPUs, queues, gangs, and what happens."""
