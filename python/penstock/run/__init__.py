"""Around the steps of a training: what it is going to take, how it gets on, and how it ends."""
