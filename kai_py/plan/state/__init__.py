"""The state that one cycle changes reversibly: the statement and its parts."""
