"""One simulated day on spot nodes that are interrupted, against on-demand nodes alone."""
