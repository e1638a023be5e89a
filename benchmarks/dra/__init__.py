"""Device claims: the allocator, all nodes at once, and selectors as masks."""
