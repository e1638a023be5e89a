"""The state that one cycle changes reversibly: the statement and what it is made of."""
