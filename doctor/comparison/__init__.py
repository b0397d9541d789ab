"""What changed between two runs: the proof that a fix worked."""
