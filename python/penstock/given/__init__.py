"""What a caller gave, by which names."""
