"""What is said to objects before they are stored? Defaults for pods, checks of queues."""
