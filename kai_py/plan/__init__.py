"""The cycle and its actions. Their result is a plan: the decisions of one cycle, as data."""
