"""Reports as self-contained HTML pages with plots: simulations, plans, decisions."""
