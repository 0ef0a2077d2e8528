"""DeepSpeed's configuration: as it was given, its values, and what an engine answers of it."""
