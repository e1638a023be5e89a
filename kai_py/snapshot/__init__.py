"""The cluster as immutable columns: nodes, gangs, queues, devices."""
