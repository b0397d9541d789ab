"""The native report of Nsight Systems (`.nsys-rep`, `.qdrep`): container, chunks, events, targets and the writer.

The format is not documented by its vendor. What is here was worked out from the bytes of public reports and from the
SQLite exports that lie beside some of them, so every reader below checks what it can (declared counts, lengths, end
marks) and says what it did not understand instead of guessing.

container   header, trailer, directory, sections
chunks      the event stream: LZ4 blocks, one at a time
strings     the table that every name id points into
session     capture window, clocks, recording options that hold nothing private
target      GPUs, CUDA devices, contexts, streams, thread names
event_kinds which event type fills which table, and where each column lies in its message
wire        protobuf, one message at a time; levels and shapes: protobuf, many messages at once
events      where each event lies in its chunk; event_batch: which type and payload it has
table_rows  events to rows, field by field; columns: one kind of payload
templates   which events repeat one that is known; repeated_events and known_values: their rows
decoder     chunks to Arrow batches
report      all of it behind one object
writer      the way back
"""
