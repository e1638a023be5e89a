"""Writers of statuses: pods, queues, and the objects of each dialect."""
