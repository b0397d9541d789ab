"""Triton kernels, one file each, with a PyTorch reference beside them. They know tensors, nothing else of the engine.

Import a kernel's module where it is used, not at the top: only `engine.kernels` itself imports without Triton.
"""
