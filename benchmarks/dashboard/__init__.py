"""What a browser needs for a large cluster."""
