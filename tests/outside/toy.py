"""A model whose steps take milliseconds, in the forms in which a store can lie, and copies of its whole directory."""
import json
import os
import random
import shutil
from pathlib import Path

WORDS = ["water ", "flows ", "from ", "the ", "lake ", "to ", "turbines ", "below.\n"]

CONFIG = {
    "model": {"hidden": 32, "layers": 2, "heads": 2, "feed_forward": 64, "context": 32},
    "data": {"train": "text.tokens"},
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}},
    "memory": {"host_budget": "4MiB", "tile_elements": 4096},
    "run": {"directory": "run", "swap_directory": ["swap"], "steps": 10, "threads": 1, "sample": {"tokens": 0}},
}

# What each form sets beside; none of it changes a bit of the result.
FORMS = {
    "every": {},
    "third": {
        "run.commit_every": 3,
        "zero_optimization.offload_param.device": "cpu",
        "zero_optimization.offload_optimizer.device": "cpu",
    },
    "ram": {
        "zero_optimization.offload_param.device": "cpu",
        "zero_optimization.offload_optimizer.device": "cpu",
    },
    "mixed": {"zero_optimization.offload_param.device": "cpu"},
    "two": {"run.swap_directory": ["swap", "swap2"]},
    "kept": {"keep.every": 2, "keep.last": 3},
    "scratch": {"run.commit_every": "scratch"},
}


def set_key(config, key, value):
    *sections, name = key.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[name] = value


def config_of(form, more=None):
    config = json.loads(json.dumps(CONFIG))
    for key, value in {**FORMS[form], **(more or {})}.items():
        set_key(config, key, value)
    return config


def swap_directories(form):
    return ["swap", "swap2"] if form == "two" else ["swap"]


def write_text(directory):
    draw = random.Random(1)
    text = "".join(draw.choice(WORDS) for _ in range(4000))
    (Path(directory) / "text.txt").write_text(text)


def write_toy(program, directory, form, more=None):
    """Makes text.txt, text.tokens and config.json in the new directory."""
    directory = Path(directory)
    directory.mkdir(parents=True)
    write_text(directory)
    (directory / "config.json").write_text(json.dumps(config_of(form, more), indent=1))
    made = program.run(directory, ["prepare", "--out", "text.tokens", "text.txt"])
    if made.code != 0:
        raise RuntimeError(f"prepare failed: {made.errors}")


def remove_tree(path):
    """Also of what a blow left there: a link, a pipe, a directory that nobody may enter."""
    path = Path(path)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
        return
    if not path.exists():
        return
    for inner in [path, *path.rglob("*")]:
        if inner.is_dir() and not inner.is_symlink():
            inner.chmod(0o700)
    shutil.rmtree(path)


def copy_entry(source, target):
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        copy_tree(source, target)
    elif source.is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)
        keep_owner(source, target)


def keep_owner(source, target):
    if os.geteuid() == 0:
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)


def copy_tree(source, target):
    """A copy with modes and owners, links as links and pipes as pipes; what stood at target is removed."""
    source, target = Path(source), Path(target)
    remove_tree(target)
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        copy_entry(entry, target / entry.name)
    shutil.copystat(source, target)
    keep_owner(source, target)
