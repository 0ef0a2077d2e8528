"""Whether this machine can do what Penstock wants. Nothing here imports torch, or loads the C library, but probes.py's
children do."""
