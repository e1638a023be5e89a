"""Node limits beside resources: host ports, disks, NUMA zones, volumes, shared GPUs."""
