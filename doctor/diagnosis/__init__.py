"""Runs the catalogue of rules over a case, ranks what it finds by replay, and keeps found, ruled out and not run
apart.
"""
