#!/usr/bin/env python3
"""Attacks the program `penstock` from outside, and classifies what becomes of the training.

    tests/outside/outside.py --program build/release/penstock --dir DIR --seconds 30 --seed 7      of all a bit
    tests/outside/outside.py --program P --dir DIR --kills 849 --damage all --backups all --cuts 100     long form
    tests/outside/outside.py --program P --dir DIR --seed 7 --only 'damage/every/swap/lock/emptied'      one case

Nothing here is linked with the product or reads its sources: toy.py writes a configuration, program.py runs the real
program and understands its lines, store_files.py reads lock and manifests by swap/FORMAT.md alone, training_log.py
holds RUN/log.jsonl against that of a training in peace.

* kills.py: SIGKILL at random instants, aimed at creation, loading, steps, commits and snapshots, in all forms of a
  store. A start must go on from no less than the last step *printed* as committed, from no more than one begun; losses
  are those of a training that was never killed, and the log has each step once. A class without a kill is a failure.
* damage.py: every file × removed, emptied, zeroed, cut, flipped at each field, replaced by an older copy, a directory,
  a link, a pipe, or forbidden. Each case knows which step its bytes still allow.
* backups.py: each subset of a run's files, from an earlier step, put over the newer state.
* states.py: what may be where a store was × what store.json says × the log × the command.
* cuts.py: the file system is shut down without its journal (root, loop devices) and mounted again.

What a refusal tells people to do is done literally (remedies.py) before it is judged. Each case ends in a class:
unaffected; repaired, said; went back, said; remedy works; refused, bytes gone; and the bad ones, which must be empty:
NOTHING HELPS (though the bytes are on the disk), GIVES UP MORE (than was damaged), LEAVES SOMETHING (of a refusal),
LOST (a reported step gone without a word, wrong data, or lines of the log), HANG, ABORT. Of kills and cuts also LOG (lines), PILE (unfinished snapshots
stay), REFUSED, EMPTY. The same seed makes the same cases; when a kill falls within one is the clock's.
"""
import argparse
import fnmatch
import random
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import backups  # noqa: E402
import cuts  # noqa: E402
import damage  # noqa: E402
import kills  # noqa: E402
import states  # noqa: E402
import store_files  # noqa: E402
from judge import judge  # noqa: E402
from nobody import Nobody  # noqa: E402
from program import Program  # noqa: E402
from report import Report  # noqa: E402
from scene import BASE_STEP, Scene  # noqa: E402
from toy import FORMS, swap_directories  # noqa: E402

LEAST = 3  # cases of a kind in the short form, however slow the machine
DAMAGED_FORMS = ("every", "third", "two")


def read_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built penstock")
    parser.add_argument("--dir", required=True, help="a directory to work in; what is in DIR/outside is removed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="the short form: a share of each kind, for about so long")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--damage", default="0", help="how many cases of damage, or 'all'")
    parser.add_argument("--backups", default="0", help="how many cases of backups, or 'all'")
    parser.add_argument("--states", default="0", help="how many cases of states, or 'all'")
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--forms", default="", help="of the store, e.g. every,two")
    parser.add_argument("--only", default="", help="names of cases, with * and ?")
    parser.add_argument("--deadline", type=float, default=60, help="seconds after which a process hangs")
    return parser.parse_args(words)


class Attack:
    def __init__(self, arguments):
        self.arguments = arguments
        self.directory = Path(arguments.dir).resolve() / "outside"
        self.program = Program(str(Path(arguments.program).resolve()), arguments.deadline)
        self.began = time.monotonic()
        self.report = Report(self.again, sys.stdout)
        self.forms = [form for form in arguments.forms.split(",") if form] or list(FORMS)
        self.scenes = {}

    def again(self, name):
        given = self.arguments
        words = [sys.argv[0], "--program", given.program, "--dir", given.dir, "--seed", str(given.seed)]
        return " ".join([*words, "--only", f"'{name}'"])

    def draw_for(self, name):
        """One stream for each case, so that it can be run alone."""
        return random.Random(f"{self.arguments.seed}/{name}")

    def until(self, share):
        if self.arguments.seconds is None:
            return float("inf")
        return self.began + share * self.arguments.seconds

    def wanted(self, name):
        return not self.arguments.only or fnmatch.fnmatchcase(name, self.arguments.only)

    def chosen(self, cases, prefix, most):
        """The cases with their full names, in a drawn order where not all are wanted."""
        named = [(f"{prefix}/{case.name}", case) for case in cases]
        named = [(name, case) for name, case in named if self.wanted(name)]
        if most == "all" or self.arguments.only:
            return named
        self.draw_for(prefix).shuffle(named)
        return named[: int(most)]

    def scene(self, form):
        if form not in self.scenes:
            self.scenes[form] = Scene(self.program, self.directory / "scenes", form)
        return self.scenes[form]

    def judge_all(self, scene, named, until):
        self.report.ordinary = scene.ordinary
        for number, (name, case) in enumerate(named):
            if time.monotonic() > until and number >= LEAST:
                return
            verdict = judge(scene, case)
            self.report.add(name, f"{case.group}", verdict)

    def run_damage(self, most, until):
        forms = [form for form in self.forms if form in DAMAGED_FORMS]
        for number, form in enumerate(forms):
            if self.arguments.only and not self.arguments.only.startswith((f"damage/{form}", "damage/*", "*")):
                continue
            scene = self.scene(form)
            nobody = Nobody.if_possible(self.program, scene)
            cases = list(damage.cases(scene, self.arguments.seed, nobody))
            share = most if most == "all" else max(1, int(most) // len(forms))
            self.judge_all(scene, self.chosen(cases, f"damage/{form}", share), until)

    def run_backups(self, most, until):
        for form in ("every", "two"):
            if form not in self.forms:
                continue
            if self.arguments.only and not self.arguments.only.startswith((f"backups/{form}", "backups/*", "*")):
                continue
            scene = self.scene(form)
            newest = store_files.newest(scene.copy_of(BASE_STEP) / "swap").file
            cases = backups.cases(newest, swap_directories(form))
            share = most if most == "all" else max(1, int(most) // 2)
            self.judge_all(scene, self.chosen(cases, f"backups/{form}", share), until)

    def run_states(self, most, until):
        if self.arguments.only and not self.arguments.only.startswith(("states/", "*")):
            return
        self.judge_all(self.scene("every"), self.chosen(states.cases(), "states", most), until)

    def run_kills(self, count, until):
        classes = kills.run(self.program, self.directory, self.draw_for, count, until, self.report, self.forms)
        empty = kills.empty_classes(classes, self.forms)
        if empty:
            self.report.add_trouble("kills", kills.Trouble("kills", "EMPTY", f"no kill fell in {', '.join(empty)}"))

    def run_only(self):
        name = self.arguments.only
        if name.startswith("kills/"):
            kills.run_one(self.program, self.directory, self.draw_for, name, self.report)
        elif name.startswith("cuts/"):
            cuts.run_one(self.program, self.directory, self.draw_for, name, self.report)
        else:
            self.run_damage("all", float("inf"))
            self.run_backups("all", float("inf"))
            self.run_states("all", float("inf"))

    def run_short(self):
        draw = random.Random(self.arguments.seed)
        self.forms = ["kept", draw.choice([form for form in FORMS if form != "kept"])]
        self.run_kills(10**6, self.until(0.4))
        self.forms = [draw.choice(("every", "two"))]
        self.run_damage("10000", self.until(0.7))
        self.run_backups("10000", self.until(0.9))
        self.run_states("10000", self.until(1.0))

    def run_long(self):
        if self.arguments.kills:
            self.run_kills(self.arguments.kills, float("inf"))
        if self.arguments.damage != "0":
            self.run_damage(self.arguments.damage, float("inf"))
        if self.arguments.backups != "0":
            self.run_backups(self.arguments.backups, float("inf"))
        if self.arguments.states != "0":
            self.run_states(self.arguments.states, float("inf"))
        if self.arguments.cuts:
            forms = [form for form in self.forms if form != "scratch"]
            cuts.run(self.program, self.directory, self.draw_for, self.arguments.cuts, float("inf"), self.report, forms)

    def run(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        if self.arguments.only:
            self.run_only()
        elif self.arguments.seconds is not None:
            self.run_short()
        else:
            self.run_long()
        self.report.say("outside", f"seed {self.arguments.seed}, {time.monotonic() - self.began:.0f} seconds")
        return self.report.end()


if __name__ == "__main__":
    sys.exit(Attack(read_arguments(sys.argv[1:])).run())
