"""Diagnoses held against what was known before: samples with an `expected.json`."""
