"""The version of the distribution `inference-doctor`."""

__version__ = "0.1.0"
