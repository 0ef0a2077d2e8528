"""DeepSpeed's JSON and calls, in the program's own keys."""
