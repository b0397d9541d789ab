"""Ranks that wait for each other, and data that moves between them."""
