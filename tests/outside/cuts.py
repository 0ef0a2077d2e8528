"""Power cuts: the file system under a training is shut down at an instant, mounted again, and the training goes on."""
import os
import time
from collections import Counter
from pathlib import Path

import toy
from kills import STEPS, Aim, Training, class_of, next_aim, reference_of, unfinished_snapshots
from loop_mount import LoopMount, can_mount, own_namespace
from program import is_abort


class CutTraining(Training):
    """Its directory lies on a file system that loses its power; what it prints is kept elsewhere."""

    def __init__(self, program, mount, outputs, form, draw, name, reference):
        self.mount, self.outputs = mount, Path(outputs)
        super().__init__(program, mount.point / "training", form, draw, name, reference)
        os.sync()  # text and configuration are there for good

    def live_until_cut(self, aim):
        running = self.program.start(self.work, self.command(STEPS), self.outputs)
        aim(running)
        there = not running.ended()
        self.mount.cut()
        life = running.wait()
        self.lives.append(life)
        if life.code is None:
            self.trouble("HANG", f"not ended {life.seconds:.0f} s after the power was cut")
        if is_abort(life):
            self.trouble("ABORT", f"ended with {life.code} after the power was cut")
        self.mount.power_up()
        self.judge_start(life)
        self.note_reports(life)
        return life, there


def cut_training(program, mount, outputs, form, draw, name, reference, usual_s, most, classes):
    training = CutTraining(program, mount, outputs, form, draw, name, reference)
    aim = Aim(draw, training.work, form, usual_s)
    cuts = 0
    while cuts < most:
        before = set(unfinished_snapshots(training.work))
        life, there = training.live_until_cut(getattr(aim, next_aim(draw, training, form, classes)))
        if not there:
            break
        cuts += 1
        classes[class_of(life, before, training.work)] += 1
    training.finish()
    toy.remove_tree(training.work)
    return cuts, training.troubles


def run_on(kind, program, directory, draw_for, count, until, report, forms, reference, usual_s):
    mount = LoopMount(directory, kind)
    outputs = Path(directory) / "outputs"
    outputs.mkdir(exist_ok=True)
    cuts, number, classes = 0, 0, Counter()
    try:
        while cuts < count and time.monotonic() < until:
            form = forms[number % len(forms)]
            name = f"cuts/{kind}/{form}/{number}"
            done, troubles = cut_training(program, mount, outputs, form, draw_for(name), name, reference, usual_s,
                                          min(5, count - cuts), classes)
            cuts += done
            number += 1
            for trouble in troubles:
                report.add_trouble(f"power cuts, {kind}", trouble)
    finally:
        mount.remove()
    where = ", ".join(f"{many} in {name}" for name, many in sorted(classes.items()))
    report.say(f"power cuts, {kind}", f"{cuts} cuts of {number} trainings: {where}")
    return cuts


def run(program, directory, draw_for, count, until, report, forms):
    """`count` cuts, half of them on each file system that can be mounted here."""
    kinds = []
    for kind in ("ext4", "xfs"):
        why_not = can_mount(kind)
        if why_not:
            report.say(f"power cuts, {kind}", f"skipped, {why_not}")
        else:
            kinds.append(kind)
    if not kinds:
        return
    own_namespace()
    reference, usual_s = reference_of(program, Path(directory) / "reference", report)
    for kind in kinds:
        run_on(kind, program, directory, draw_for, count // len(kinds), until, report, forms, reference, usual_s)


def run_one(program, directory, draw_for, name, report):
    """The training of this name ("cuts/KIND/FORM/NUMBER") again."""
    _, kind, form, _ = name.split("/")
    own_namespace()
    reference, usual_s = reference_of(program, Path(directory) / "reference", report)
    run_on(kind, program, directory, lambda _: draw_for(name), 5, float("inf"), report, [form], reference, usual_s)
