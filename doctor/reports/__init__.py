"""One file per output: a diagnosis in, text out. Nothing here computes, reads a file or knows SQL."""
