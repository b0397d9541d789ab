"""Evidence without environment, command lines, process lists, host and user names; times and structure stay.

secrets     what is private in the file at hand: hosts, users, values of the environment, arguments
masking     texts out of bytes, at equal length, so that nothing around them moves
report      native reports of Nsight Systems
sqlite      SQLite exports of Nsight Systems
trace       PyTorch profiler traces
redaction   what `doctor redact` does
"""
