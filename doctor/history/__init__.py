"""Diagnoses over time, in a database: a DuckDB file, or PostgreSQL for a team.

Kept are figures, findings, and the base names and digests of the evidence; never paths, hosts, users, command lines or
the password of the database.
"""
