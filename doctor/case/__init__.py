"""The case file: one DuckDB database that all evidence goes into, and the views that rules read."""
