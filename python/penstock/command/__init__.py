"""The verbs of python -m penstock."""
