"""The chart of step lengths."""
