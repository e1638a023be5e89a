"""Dialects: adapters that read other schedulers' queues and gangs in our terms."""
