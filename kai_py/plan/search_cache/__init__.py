"""The search cache: results of earlier searches, by their inputs."""
