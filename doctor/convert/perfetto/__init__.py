"""A case to a trace of Perfetto, for ui.perfetto.dev: streams, threads, ranges, steps, counters and the findings.

Written with the official protobuf definitions, which the package `perfetto` ships; its trace processor is not used.
"""
