"""What is told to people: what a training is going to take, and how it gets on."""
