"""A native report to NVIDIA's own export layouts, without NVIDIA's tools: an SQLite file or a folder of Parquet files.

Environment, command lines, working folders, host and user names, and what the recorded processes printed are never
written: the tables that hold only such things are left out, and of the names only those that a written row refers to
are kept.
"""
