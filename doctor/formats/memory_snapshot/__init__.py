"""Snapshots of PyTorch's CUDA memory, as `torch.cuda.memory._dump_snapshot` pickles them.

A pickle is a program. This package does not run it: `plain_pickle` interprets the few instructions that build dicts,
lists, tuples, strings and numbers, within bounds, and refuses every other. `stacks` and `snapshot` make rows of it.
"""
