"""Weights in files: as Hugging Face keeps them, in and out; of a store without its model; of a model that is being made."""
