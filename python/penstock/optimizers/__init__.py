"""What is known of an optimizer: which kind it is, its moments by torch's names, and the one that was given."""
