"""Foreign spellings of queues and gangs, each a small adapter into ours."""
