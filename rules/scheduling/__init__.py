"""How work is cut into steps and batches."""
