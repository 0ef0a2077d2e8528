"""What zero_to_fp32.py does, which lies beside the checkpoints: people run it by habit."""
from __future__ import annotations

import argparse
import sys

from ..errors import PenstockError, StorageError
from ..files.fp32 import convert_zero_checkpoint_to_fp32_state_dict


def main(arguments: list[str] | None = None) -> int:
    """Its exit code, as python -m penstock has them."""
    parser = argparse.ArgumentParser(prog="zero_to_fp32.py", description="A checkpoint's weights in fp32. The same, as Hugging "
                                     "Face's files with their configuration: python -m penstock export CHECKPOINT OUT "
                                     "--dtype float32")
    parser.add_argument("checkpoint_dir", help="the directory that has the file 'latest'")
    parser.add_argument("output_dir", help="where pytorch_model.bin is to be")
    parser.add_argument("--max_shard_size", default="5GB", help="of one file (%(default)s)")
    parser.add_argument("--safe_serialization", action="store_true", help="model.safetensors in the place of pickles")
    parser.add_argument("-t", "--tag", help="of the checkpoint; default: the newest")
    parser.add_argument("--exclude_frozen_parameters", action="store_true")
    parser.add_argument("-d", "--debug", action="store_true", help="nothing more is told")
    chosen = parser.parse_args(arguments)
    try:
        convert_zero_checkpoint_to_fp32_state_dict(
            chosen.checkpoint_dir, chosen.output_dir, chosen.max_shard_size, chosen.safe_serialization, chosen.tag,
            chosen.exclude_frozen_parameters)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 4 if isinstance(error, StorageError) else 2
    return 0
