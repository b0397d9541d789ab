"""Memory as its owners tell it: out-of-memory texts, allocator snapshots."""
