"""Reads what a refusal tells its user to do, does it literally, and runs the training again."""
import re
import shlex
import shutil
from dataclasses import dataclass, field

import toy
import verdict as verdicts
from scene import BASE_STEP

SCRUB = re.compile(r"'?penstock (ckpt scrub [^'`]+?)['`]")
TAKE_OUT = re.compile(r"take the file out of the directory")
REMOVE_IT = re.compile(r"(?:^|[;,.] )(?:remove it|correct it, remove it)")
PREPARE = re.compile(r"`penstock prepare")
MAKE_READABLE = re.compile(r"readable and writable for this user|check the path and the permissions|Permission denied")
START_AGAIN = re.compile(r"\((\S+)/kept, if there are any\), remove the rest, and start again, from a snapshot")
GO_TO_KEPT = re.compile(r"Go back to a kept snapshot in \S+ \(the newest of this model is ([\w.-]+);")
LISTED = re.compile(r"--resume-from goes back to (?:one|a kept snapshot) \('penstock (ckpt ls [^']+)' lists them\)")
ANOTHER_SNAPSHOT = re.compile(r"take another snapshot|use another snapshot|there are: |without --resume-from")
GO_BACK = re.compile(r"--go-back")
BACKUP = re.compile(r"[Pp]ut (it|a copy of the directory) (back from where|in its place)")
ANOTHER_RUN_DIRECTORY = re.compile(r"give this run another run\.directory|another run\.directory")
MOVE_AWAY = re.compile(r"(?:move|rename) (\S+) (?:away|aside|elsewhere)")
FILE_ITSELF = re.compile(r"put the file itself in its place")
NO_FILE = re.compile(r"(?:^|: )(\S+): (?:there is no (?:file )?)?'([\w.]+)'")
PATH = re.compile(r"(?:^|cannot open |cannot read |: )((?:swap2?|run|text\.tokens)[\w./-]*?)(?=[: ,;]|$)")


@dataclass
class Attempt:
    name: str
    needs_backup: bool = False
    lives: list = field(default_factory=list)
    verdict: object = None
    start: int | None = None  # from where the training went on in the end

    def tale(self):
        if self.start is not None:
            return f"'{self.name}' goes on from step {self.start}"
        return f"'{self.name}' does not help"


def path_in(scene, message):
    message = message.replace(f"{scene.work}/", "")
    if missing := NO_FILE.search(message):
        return "/".join(missing.groups())
    found = PATH.search(message)
    return found.group(1) if found else None


def take_out(scene, message):
    """Moves the file that the message is about out of its directory."""
    path = path_in(scene, message)
    if path is None or "/" not in path:
        return
    file = scene.work / path
    if file.is_symlink() or file.exists():
        file.rename(scene.work / ("taken-out-" + file.name))


def run_words(scene, case, words):
    program = case.program or scene.program
    return program.run(scene.work, shlex.split(words))


def do_scrub(scene, case, message, attempt):
    if TAKE_OUT.search(message):
        take_out(scene, message)
    attempt.lives.append(run_words(scene, case, SCRUB.search(message).group(1)))
    return ()


def do_file_itself(scene, case, message, attempt):
    """In the place of the link that the message is about."""
    path = path_in(scene, message)
    link = scene.work / (path or "")
    if not link.is_symlink() or not link.is_file():  # it may lead nowhere, or to itself
        return None
    target = link.resolve()
    link.unlink()
    shutil.copy2(target, link)
    return ()


def do_remove(scene, case, message, attempt):
    path = path_in(scene, message)
    if path:
        toy.remove_tree(scene.work / path)
    return ()


def do_prepare(scene, case, message, attempt):
    toy.remove_tree(scene.work / "text.tokens")
    attempt.lives.append(run_words(scene, case, "prepare --out text.tokens text.txt"))
    return ()


def do_make_readable(scene, case, message, attempt):
    path = path_in(scene, message) or "swap"
    for one in ((scene.work / path).parent, scene.work / path):
        if one.exists():
            one.chmod(0o700 if one.is_dir() else 0o600)
    return ()


def newest_of(folder):
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return ("--resume-from", str(folder / names[-1])) if names else None


def do_start_again(scene, case, message, attempt):
    store = scene.work / START_AGAIN.search(message).group(1)
    if store.parent.name == "kept":  # a snapshot's own remedy
        toy.remove_tree(store)
        return newest_of(store.parent)
    aside = scene.work / "kept-aside"
    if (store / "kept").is_dir():
        shutil.move(store / "kept", aside)
    for swap in toy.swap_directories(scene.form):
        toy.remove_tree(scene.work / swap)
    return newest_of(aside)


def do_go_to_kept(scene, case, message, attempt):
    return ("--resume-from", GO_TO_KEPT.search(message).group(1))


def do_listed(scene, case, message, attempt):
    """The newest of those that `penstock ckpt ls` lists, each in a line that has its name."""
    attempt.lives.append(run_words(scene, case, LISTED.search(message).group(1)))
    names = re.findall(r"\bstep-\d+\b", attempt.lives[-1].output)
    return ("--resume-from", max(names, key=lambda name: int(name.split("-")[1]))) if names else None


def do_another_snapshot(scene, case, message, attempt):
    return ("--resume-from", "step-3")


def do_go_back(scene, case, message, attempt):
    return (*case.more, "--go-back")


def do_backup(scene, case, message, attempt):
    for swap in toy.swap_directories(scene.form):
        toy.copy_tree(scene.copy_of(BASE_STEP - 1) / swap, scene.work / swap)
    return ()


def do_another_run_directory(scene, case, message, attempt):
    return (*case.more, "--set", "run.directory=run-other")


def do_move_away(scene, case, message, attempt):
    named = MOVE_AWAY.search(message).group(1).strip("'`,;.")
    file = scene.work / (path_in(scene, message) or named if named in ("it", "them") else named)
    if file.exists() or file.is_symlink():
        file.rename(scene.work / ("moved-" + file.name))
    return ()


# In the order of what they give up: a later one is tried when no earlier one gave all that the disk holds.
KNOWN = [
    ("the file itself", FILE_ITSELF, do_file_itself),
    ("penstock ckpt scrub", SCRUB, do_scrub),
    ("penstock prepare", PREPARE, do_prepare),
    ("make it readable", MAKE_READABLE, do_make_readable),
    ("move it away", MOVE_AWAY, do_move_away),
    ("remove it", REMOVE_IT, do_remove),
    ("another run.directory", ANOTHER_RUN_DIRECTORY, do_another_run_directory),
    ("--go-back", GO_BACK, do_go_back),
    ("the kept snapshot that it names", GO_TO_KEPT, do_go_to_kept),
    ("the newest of ckpt ls", LISTED, do_listed),
    ("another snapshot", ANOTHER_SNAPSHOT, do_another_snapshot),
    ("start again from a snapshot", START_AGAIN, do_start_again),
    ("a backup of the directory", BACKUP, do_backup),
]


def follow(scene, case, name, action, message, done=()):
    """One remedy, and those of the refusals that answer it; each is done once."""
    done = (*done, name)
    attempt = Attempt(name, needs_backup=action is do_backup)
    more = action(scene, case, message, attempt)
    if more is None:
        return attempt
    if action in (do_scrub, do_prepare) and not more:
        more = case.more
    if "--go-back" in done and "--go-back" not in more:
        more = (*more, "--go-back")  # who has decided that once means it
    life = scene.train(*more, program=case.program)
    attempt.lives.append(life)
    failed = [one for one in attempt.lives if one.code != 0]
    found = [verdicts.verdict_on_life(scene, case, one) for one in failed]
    attempt.verdict = next((one for one in found if one), None)
    if attempt.verdict:
        return attempt
    if life.code == 0:
        attempt.verdict = verdicts.verdict_on_success(scene, case, life)
        attempt.start = life.start_step()
        return attempt
    message = "\n".join(one.message() for one in failed)
    return deeper(scene, case, attempt, message, done)


def deeper(scene, case, attempt, message, done):
    for name, pattern, action in KNOWN:
        if name in done or not pattern.search(message):
            continue
        after = follow(scene, case, name, action, message, done)
        after.name = f"{attempt.name} → {after.name}"
        after.lives = attempt.lives + after.lives
        after.needs_backup |= attempt.needs_backup
        return after
    return attempt


def try_all(scene, case, life):
    """Each remedy from the refused state anew, until one gives all that the disk still holds."""
    message = life.error()
    tried = []
    for name, pattern, action in KNOWN:
        if not pattern.search(message):
            continue
        scene.back_to_refused()
        attempt = follow(scene, case, name, action, message)
        tried.append(attempt)
        good = attempt.start is not None and attempt.start >= (case.best or 0) and attempt.verdict.kind != verdicts.LOST
        if good and not attempt.needs_backup:
            break
    return tried
