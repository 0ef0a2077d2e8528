"""A place in which cases happen: a stretch of training with copies of earlier states, and a training in peace."""
from pathlib import Path

import toy
from program import shape
from store_files import committed_step
from training_log import read_reference

BASE_STEP = 8  # where the store stands when something happens to it
LAST_STEP = 11  # where the training that follows ends
OLDER_STEPS = (5, 6, 7)  # of which there are copies
SNAPSHOT_STEPS = (3, 6)  # keep.every is 3

PROFILE = """{"version": 1, "made": "2026-11-01T10:00:00Z", "machine": "outside", "block_bytes": 1048576,
"read_in_flight_bytes": 8388608, "write_in_flight_bytes": 8388608, "read_bytes_per_second": null,
"overwrite_bytes_per_second": null, "first_write_bytes_per_second": null, "sustained_write_bytes_per_second": null,
"write_cache_bytes": null}
"""


class Scene:
    """All cases of one form: each begins with a copy of the base at the same path, since RUN/store.json knows paths."""

    def __init__(self, program, directory, form):
        self.program = program
        self.form = form
        self.directory = Path(directory) / form
        self.work = self.directory / "work"
        self.refused = self.directory / "refused"
        self.ordinary = set()
        self.reference = {}
        self.build()

    def copy_of(self, step):
        return self.directory / f"step{step}"

    def train(self, *more, steps=LAST_STEP, program=None):
        arguments = ["train", "config.json", "--steps", str(steps), *more]
        return (program or self.program).run(self.work, arguments)

    def train_in_peace(self, *more, steps):
        life = self.train(*more, steps=steps)
        if life.code != 0:
            raise RuntimeError(f"a training in peace ended with {life.code}: {life.errors}")
        self.ordinary.update(shape(line) for line in life.lines())
        return life

    def build(self):
        toy.remove_tree(self.directory)
        self.directory.mkdir(parents=True)
        toy.write_toy(self.program, self.work, self.form, {"keep.every": 3})
        for swap in toy.swap_directories(self.form):
            (self.work / swap).mkdir()
            (self.work / swap / "penstock-profile.json").write_text(PROFILE)
        for step in (*OLDER_STEPS, BASE_STEP):
            self.train_in_peace(steps=step)
            toy.copy_tree(self.work, self.copy_of(step))
            if committed_step(self.work / "swap") != step:
                raise RuntimeError(f"the outside reader finds step {committed_step(self.work / 'swap')}, not {step}")
        self.train_in_peace(steps=LAST_STEP)
        self.train_in_peace(steps=LAST_STEP)  # finished already
        self.reference = read_reference(self.work / "run/log.jsonl")
        for step in SNAPSHOT_STEPS:
            self.set_up()
            self.train_in_peace("--resume-from", f"step-{step}", steps=LAST_STEP)

    def set_up(self, step=BASE_STEP):
        toy.copy_tree(self.copy_of(step), self.work)

    def keep_refused(self):
        toy.copy_tree(self.work, self.refused)

    def back_to_refused(self):
        toy.copy_tree(self.refused, self.work)
