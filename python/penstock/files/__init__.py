"""Weights as Hugging Face keeps them: safetensors files, directories of them, in and out."""
