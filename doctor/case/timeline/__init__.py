"""The case as a time-line that can be drawn at any zoom: lanes of work, and tracks of figures over time."""
