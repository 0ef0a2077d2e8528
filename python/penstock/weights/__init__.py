"""Weights that come and go: parameters, the core's memory under them, their gradients, and what a program has of either."""
