"""What goes on: a checkpoint, and what each step commits beside the weights."""
