"""One file a screen, with its style sheet beside it."""
