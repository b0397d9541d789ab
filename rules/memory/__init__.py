"""Memory that is moved, missing or wasted."""
