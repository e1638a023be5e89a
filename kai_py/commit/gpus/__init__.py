"""Shared GPUs of device plugins: reservation pods, and the pods that share what they keep."""
