"""Dynamic Resource Allocation: inventory, allocator, constraints, counters, shared capacity."""
