"""The command line: parse, call, write. One file per command, loaded when that command runs."""
