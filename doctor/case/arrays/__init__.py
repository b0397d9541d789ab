"""The bulk of a time-line as numpy arrays: what the SQL files of `views/` would have to sort millions of rows for.

columns      columns of a query as arrays, rows numbered by group, running maxima
calls        API calls in order of start, nested calls folded away
operations   device operations in order of start, quiet times, busy times
launches     which call launched which operation
steps        operations that come back, and the step of every operation and call
intervals    calls of launching threads, launch-to-launch intervals
launchers    which threads launch by turns, and which at the same time
pieces       steps that are cut into forward passes
freed        memory given back between stages
derivation   feeds the SQL files: relations that they read
"""
