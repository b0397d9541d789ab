"""Kernels that do the right thing in a slow way."""
