"""What trace formats are, without the case file: used by readers, convert, redact and tests."""
