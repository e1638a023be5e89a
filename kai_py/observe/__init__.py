"""Observability: metrics, events, explanations, health, HTTP API and dashboard."""
