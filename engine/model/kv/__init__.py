"""Where keys and values are kept: one file per layout."""
