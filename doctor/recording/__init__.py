"""Recordings of a command that knows nothing of it: a case folder that `doctor diagnose` reads.

plan             what is recorded, and how much at most
nsys_command     the command line of nsys with the settings that the rules need
torch_injection  the profiler of torch inside a Python command; `injected/` is what runs there
supervision      the command as if it had been started alone: exit code, signals, nothing left behind
case             all of it together: run, sample vitals beside it, make what was written fit to keep
"""
