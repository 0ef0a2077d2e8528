"""Programs that were written for DeepSpeed, as they are.

    import penstock.deepspeed  # the first line, before transformers and Accelerate: they look for DeepSpeed once
    import deepspeed           # this package's, in the program, in transformers, Accelerate, TRL

Every name is in names.py, with the place where it is or the reason why it is not. docs/from-deepspeed.md says what
becomes of a configuration.
"""
from .registered import register

register()
