"""The GPU waits for the host: launches, pauses, waits, allocations, code loading."""
