"""Claims as the API has them: allocation, release, conflicts, recovery."""
