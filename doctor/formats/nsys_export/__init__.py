"""What the tables of an Nsight Systems export mean, whatever file they lie in: SQLite, Parquet or Arrow.

tables      which tables and columns are read, and the protocol of something that holds them
identifiers process and thread ids out of NVIDIA's packed global ids
names       the string table: ids in, texts out
codes       memory kinds, copy directions, synchronisation kinds, severities
device_work, host_calls, nvtx, messages, machine   one table's rows each, in the words of the case file
recording   capture window, clocks, version, graph trace level
export      all of it, in one pass
"""
