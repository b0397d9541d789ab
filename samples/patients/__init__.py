"""Programs that are ill in one known way, and the same programs cured."""
