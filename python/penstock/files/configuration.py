"""The files that stand beside a model's weights in a directory of Hugging Face's: config.json, generation_config.json."""
from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

CONFIG = "config.json"
DTYPES = ("dtype", "torch_dtype")  # as transformers 5 and the older ones say it


def write_configuration(model: nn.Module, directory: Path, dtype: torch.dtype | None) -> None:
    """Of a model that has them. `dtype` is what the weights beside it are of; None: the model's own."""
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "save_pretrained"):
        return
    config = copy.deepcopy(config)
    dtype = dtype or next(each.dtype for each in model.parameters() if each.is_floating_point())
    setattr(config, "dtype" if hasattr(config, "dtype") else "torch_dtype", word_of(dtype))
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    can_generate: Any = getattr(model, "can_generate", None)
    generation: Any = getattr(model, "generation_config", None)
    if generation is not None and can_generate is not None and can_generate():
        generation.save_pretrained(directory)


def write_texts(texts: Mapping[str, str], directory: Path, dtype: torch.dtype | None) -> None:
    """The same, of what was written so before."""
    for name, text in texts.items():
        (directory / name).write_text(_of_type(text, dtype) if name == CONFIG else text, encoding="utf-8")


def word_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# Private.
def _of_type(text: str, dtype: torch.dtype | None) -> str:
    said = json.loads(text)
    changed = {key: word_of(dtype) for key in DTYPES if key in said and dtype is not None and said[key] != word_of(dtype)}
    return json.dumps({**said, **changed}, indent=2, sort_keys=True) + "\n" if changed else text
