"""What a training is going to take: memory and room, and how long its steps are."""
