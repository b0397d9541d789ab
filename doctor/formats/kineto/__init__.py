"""Traces of the PyTorch profiler (Kineto), in Chrome's JSON trace format.

opening      how a trace without an object around its events begins
events       one event of the trace, the arguments that matter, typed
scan         where a JSON value ends, without parsing it
stream       a trace of any size: header values and lists of events, piece by piece
repair       events that are no valid JSON: NaN, bad bytes, bad escapes
times        decimal microseconds as text to whole nanoseconds
categories   what an event is, in old and new traces
columns      columns of whole numbers and texts out of loosely typed values
device_work, host_work   rows in the words of the case file
machine      devices, processes, threads, rank and clock
"""
