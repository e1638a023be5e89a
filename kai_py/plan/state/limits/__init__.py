"""Node limits beside resources: host ports, NUMA zones, volumes, shared GPUs."""
