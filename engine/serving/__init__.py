"""The engine behind HTTP: the only asynchronous code, and the only threads."""
