"""One reader per evidence format: a path in, rows of the case file out. Formats are told by content, never by name."""
