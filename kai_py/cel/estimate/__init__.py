"""The static cost estimate of an expression, as the API server makes it at admission."""
