"""A model of transformers' by its config.json alone, without memory."""
from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from ..errors import UsageError


def of_directory(directory: str | os.PathLike[str]) -> nn.Module:
    """On meta. Raises UsageError: no transformers, or none that has the class."""
    try:
        import transformers
    except ImportError as error:
        raise UsageError(f"{directory} is a model of transformers, which is not installed: {error}") from error
    config = transformers.AutoConfig.from_pretrained(directory)
    named = (config.architectures or ["AutoModelForCausalLM"])[0]
    kind: Any = getattr(transformers, named, None)
    if kind is None:
        raise UsageError(f"{directory}/config.json: transformers {transformers.__version__} has no class '{named}'; "
                         "write a function that makes the model and name it as MODULE:FUNCTION")
    make = kind.from_config if named.startswith("AutoModel") else kind._from_config
    with torch.device("meta"):
        made: nn.Module = make(config)
    return made
