"""Runs the rules over a case and ranks what they find by replay: found, ruled out and not run."""
