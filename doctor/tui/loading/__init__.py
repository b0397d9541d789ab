"""Evidence into a case and a diagnosis, in a process of its own, so that the screen answers at all times."""
