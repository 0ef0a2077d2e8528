"""Around the steps of a training: where it lies, what it reads, how it gets on, what is saved, and how it ends."""
