"""Tables of the snapshot: what is kept per subject as objects and pods change."""
