"""ResourceClaims in the API: allocation, release, conflicts, recovery."""
