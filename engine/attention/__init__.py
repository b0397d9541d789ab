"""Attention over cached keys and values: one interface, one file per backend."""
