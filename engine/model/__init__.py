"""The decoder: what a checkpoint says, computed. Knows no scheduler, no process group and no CUDA graph."""
