"""Kills a training again and again, at instants of every kind, and holds each next start against what was printed."""
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import store_files
import toy
from program import STEP, is_abort, shape
from toy import FORMS
from training_log import check_log, read_reference

STEPS = 30  # at which kills end
CLOSING_STEPS = 33  # the last steps show that what the kills left was right
KEPT_LAST = FORMS["kept"]["keep.last"]
GOING_BACK = 0.15  # of the lives that can
PATIENCE = 40  # trainings after which a class that is still empty will stay so
CLASSES = ("creation", "loading", "steps", "commit", "snapshot")
AIMS = ("clock", "creation", "loading", "step", "step", "commit", "commit", "snapshot")
AIMED_AT = {"creation": "creation", "loading": "loading", "step": "steps", "commit": "commit", "snapshot": "snapshot"}
BACKENDS = ("auto", "auto", "io_uring", "libaio", "threads")


@dataclass
class Trouble:
    name: str
    kind: str
    why: str
    lives: list = field(default_factory=list)


def wait_for(running, seen, limit_s=20):
    """Polls until seen() or the end of the process. Returns whether it was seen."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if seen():
            return True
        if running.ended():
            return False
    return False


def stamps(paths):
    found = []
    for path in paths:
        try:
            found.append(os.stat(path).st_mtime_ns)
        except OSError:
            found.append(0)
    return found


def file_changes(paths):
    before = stamps(paths)
    return lambda: stamps(paths) != before


def prints(running, text):
    return lambda: text in running.text()


class Aim:
    """Waits for an instant of one kind; a kill of the process follows it."""

    def __init__(self, draw, work, form, usual_s):
        self.draw, self.work, self.form, self.usual_s = draw, Path(work), form, usual_s

    def linger(self, most_s):
        time.sleep(self.draw.random() * most_s)

    def clock(self, running):
        self.linger(self.usual_s)

    def creation(self, running):
        wait_for(running, (self.work / "swap/lock").exists)
        if self.draw.random() < 0.5:
            wait_for(running, (self.work / "swap/data").exists)
        self.linger(0.03)

    def loading(self, running):
        if self.draw.random() < 0.5:
            wait_for(running, file_changes([self.work / "swap/lock"]))
        else:
            wait_for(running, prints(running, "memory:"))
        self.linger(0.02)

    def step(self, running):
        number = self.draw.randrange(1, 8)
        wait_for(running, lambda: running.text().count("penstock: step ") >= number)
        self.linger(0.02)

    def commit(self, running):
        self.step(running)
        names = [self.work / "swap" / name for name in store_files.MANIFESTS]
        if wait_for(running, file_changes(names), 5) and self.draw.random() < 0.5:
            self.linger(0.002)

    def snapshot(self, running):
        self.step(running)
        folder = self.work / "swap/kept"
        have = set(os.listdir(folder)) if folder.is_dir() else set()
        wait_for(running, lambda: folder.is_dir() and bool(set(os.listdir(folder)) - have), 5)
        self.linger(0.01)


def unfinished_snapshots(work):
    folder = Path(work) / "swap/kept"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if not store_files.is_whole_snapshot(folder / name)]


def sizes_in(directory):
    return {entry.name: entry.stat().st_size for entry in sorted(directory.iterdir())}


def class_of(life, before, work):
    """Where the kill fell, by what it left."""
    swap = Path(work) / "swap"
    step = store_files.committed_step(swap) if swap.is_dir() else None
    if step is None and not life.steps():
        return "creation"
    if set(unfinished_snapshots(work)) - before:
        return "snapshot"
    if not life.steps() and life.resumed() and step == life.start_step():
        return "loading"
    if not life.matches(STEP) and not life.resumed():
        return "loading" if step else "creation"
    if store_files.commit_was_cut(swap) or (step or 0) > max(life.committed(), life.start_step() or 0):
        return "commit"
    return "steps"


def step_of(name):
    """Of a snapshot, "step-12"."""
    return int(name.split("-")[1])


class Training:
    """One training of a form, with its kills and what it has reported so far."""

    def __init__(self, program, directory, form, draw, name, reference):
        self.program, self.work, self.form = program, Path(directory), form
        self.draw, self.name, self.reference = draw, name, reference
        self.reported = 0  # the highest step that any life printed as committed
        self.begun = 0  # the highest step that any life may have begun
        self.kept = set()  # snapshots that were reported and not removed
        self.lives = []
        self.troubles = []
        toy.remove_tree(self.work)
        toy.write_toy(program, self.work, form)

    def trouble(self, kind, why):
        self.troubles.append(Trouble(self.name, kind, why, self.lives[-2:]))

    def command(self, steps):
        backend = self.draw.choice(BACKENDS)
        return ["train", "config.json", "--steps", str(steps), "--set", f"run.io_backend={backend}"]

    def go_back(self, aim):
        """A life that goes back to a kept snapshot, and is killed: from then on that step is as good as a later one."""
        name = self.draw.choice(sorted(self.kept))
        self.reported = min(self.reported, step_of(name))
        return self.live(aim, more=["--resume-from", name])

    def live(self, aim=None, steps=STEPS, more=()):
        running = self.program.start(self.work, self.command(steps) + list(more))
        if aim:
            aim(running)
            running.kill()
        life = running.wait()
        self.lives.append(life)
        self.judge_start(life)
        self.note_reports(life)
        return life

    def judge_start(self, life):
        start = life.start_step()
        if self.form == "scratch":
            if start:
                self.trouble("LOST", f"a scratch run went on from step {start}")
            return
        if start is None:
            return
        if start < self.reported:
            self.trouble("LOST", f"step {self.reported} was reported as committed; the next life began at {start}")
        if start > self.begun:
            self.trouble("LOST", f"no life began step {start}, from which this one goes on")

    def note_reports(self, life):
        if self.form == "scratch":
            self.begun = 0
            return
        self.reported = max(self.reported, life.committed())
        steps = life.steps()
        start = life.start_step()
        # The step after the last printed one may be whole on the disk.
        self.begun = max([self.begun, *(step + 1 for step in steps), *([start + 1] if start is not None else [])])
        self.kept |= {Path(path).name for path in life.kept()}
        self.kept -= {Path(path).name for path in life.removed()}

    def finish(self):
        life = self.live(steps=CLOSING_STEPS)
        if not self.judge_end(life):
            return
        problems = check_log(self.work / "run/log.jsonl", self.reference, CLOSING_STEPS).problems()
        if problems:
            self.trouble("LOG", "; ".join(problems))
        # Older than those that stay may be half removed, or removed unreported: a kill fell into that.
        whole = sorted(step_of(entry.name) for entry in (self.work / "swap/kept").glob("step-*")
                       if store_files.is_whole_snapshot(entry))
        oldest = whole[-KEPT_LAST] if len(whole) >= KEPT_LAST else 0
        for name in sorted(self.kept, key=step_of):
            if step_of(name) >= oldest and not store_files.is_whole_snapshot(self.work / "swap/kept" / name):
                self.trouble("LOST", f"snapshot {name} was reported as kept and is none")
        left = unfinished_snapshots(self.work)
        if left:
            what = {name: sizes_in(self.work / "swap/kept" / name) for name in left}
            self.trouble("PILE", f"unfinished snapshots are left: {what}")
        if self.kept and self.draw.random() < 0.3:
            self.verify(max(self.kept, key=step_of))

    def verify(self, name):
        life = self.program.run(self.work, ["ckpt", "verify", "swap", name])
        self.lives.append(life)
        if life.code != 0:
            self.trouble("LOST", f"snapshot {name} was reported as kept and does not verify")

    def judge_end(self, life):
        if life.code is None:
            self.trouble("HANG", f"not ended after {life.seconds:.0f} s")
        elif is_abort(life):
            self.trouble("ABORT", f"ended with {life.code}")
        elif life.code != 0 and not life.killed:
            self.trouble("REFUSED", f"ended with {life.code}: {life.error()}")
        return life.code == 0


def reference_of(program, directory, report):
    """The losses of a training that is never killed; the forms have the same bits."""
    toy.remove_tree(directory)
    toy.write_toy(program, directory, "every")
    life = program.run(directory, ["train", "config.json", "--steps", str(CLOSING_STEPS)])
    if life.code != 0:
        raise RuntimeError(f"the training that is never killed ended with {life.code}: {life.errors}")
    report.ordinary = {shape(line) for line in life.lines()}
    return read_reference(Path(directory) / "run/log.jsonl"), life.seconds


def next_aim(draw, training, form, classes):
    """The first life of a training is created; later ones are killed where no kill has fallen yet, or anywhere."""
    if not training.lives:
        return draw.choice(["creation", "clock"])
    possible = [aim for aim in AIMS if aim != "snapshot" or form == "kept"]
    empty = [aim for aim in possible if aim != "creation" and aim in AIMED_AT and not classes[AIMED_AT[aim]]]
    return draw.choice(empty or possible)


def kill_training(program, directory, form, draw, name, reference, usual_s, most, classes):
    """One training with at most `most` kills. Returns how many there were, and what was wrong."""
    training = Training(program, directory, form, draw, name, reference)
    aim = Aim(draw, training.work, form, usual_s)
    kills = 0
    while kills < most:
        before = set(unfinished_snapshots(training.work))
        instant = getattr(aim, next_aim(draw, training, form, classes))
        back = training.kept and draw.random() < GOING_BACK
        life = training.go_back(instant) if back else training.live(instant)
        if not life.killed:
            training.judge_end(life)
            break
        kills += 1
        classes[class_of(life, before, training.work)] += 1
    training.finish()
    return kills, training.troubles


def empty_classes(classes, forms):
    return [name for name in CLASSES if not classes[name] and (name != "snapshot" or "kept" in forms)]


def run(program, directory, draw_for, count, until, report, forms):
    """`count` kills, or as many as fit before `until`, but as long as a class is empty and it makes sense."""
    reference, usual_s = reference_of(program, Path(directory) / "reference", report)
    classes, by_form, kills, number = Counter(), Counter(), 0, 0
    while kills < count and (time.monotonic() < until or (number < PATIENCE and empty_classes(classes, forms))):
        form = forms[number % len(forms)]
        name = f"kills/{form}/{number}"
        work = Path(directory) / "killed"
        done, troubles = kill_training(program, work, form, draw_for(name), name, reference, usual_s,
                                       min(7, count - kills), classes)
        kills += done
        by_form[form] += done
        number += 1
        for trouble in troubles:
            report.add_trouble("kills", trouble)
    where = ", ".join(f"{classes[name]} in {name}" for name in CLASSES)
    which = ", ".join(f"{form} {many}" for form, many in sorted(by_form.items()))
    report.say("kills", f"{kills} kills of {number} trainings: {where}; by form {which}")
    return classes


def run_one(program, directory, draw_for, name, report):
    """The training of this name ("kills/FORM/NUMBER") again; its kills come when the clock will have it."""
    form = name.split("/")[1]
    reference, usual_s = reference_of(program, Path(directory) / "reference", report)
    classes = Counter()
    work = Path(directory) / "killed"
    _, troubles = kill_training(program, work, form, draw_for(name), name, reference, usual_s, 7, classes)
    for trouble in troubles:
        report.add_trouble("kills", trouble)
    report.say(name, ", ".join(f"{many} in {what}" for what, many in classes.items()))
