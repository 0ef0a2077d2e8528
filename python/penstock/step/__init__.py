"""A model that computes: passes, calls of units, and what their graphs keep or run again."""
