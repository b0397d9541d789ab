"""Widgets, in folders named like the part of the screen that they fill."""
