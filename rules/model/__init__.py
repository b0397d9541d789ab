"""What a model asks for: speculation, its precision, its experts."""
