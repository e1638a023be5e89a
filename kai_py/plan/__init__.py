"""A plan is data: the decisions of one cycle. Here are the cycle and the actions that write it."""
