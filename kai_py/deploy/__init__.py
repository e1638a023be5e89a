"""Manifests to deploy the scheduler and its webhooks: objects, permissions, Helm chart."""
