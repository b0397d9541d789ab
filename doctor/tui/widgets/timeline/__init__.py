"""The time-line: lanes drawn in cells, the legend, and the line about the selected item."""
