"""What the recording can and cannot show."""
