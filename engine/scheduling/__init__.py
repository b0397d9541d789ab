"""Who runs next, on which blocks: integers only, no tensor and no device."""
