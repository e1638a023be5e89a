"""Following a big cluster: memory and processor time of the mirror and the snapshot builder."""
