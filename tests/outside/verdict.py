"""What became of a run to which something happened: one word for it, and whether that word is a good one."""
import re
from dataclasses import dataclass, field

from program import is_abort
from scene import BASE_STEP, LAST_STEP
from training_log import check_log

UNAFFECTED = "unaffected"
REPAIRED = "repaired, said"
BACK = "went back, said"
REMEDY = "remedy works"
GONE = "refused, bytes gone"
STUCK = "NOTHING HELPS"  # though the bytes are on the disk
WORSE = "GIVES UP MORE"  # than was damaged: an older step than the disk still holds
LEFT = "LEAVES SOMETHING"  # though it refused
LOST = "LOST"
HANG = "HANG"
ABORT = "ABORT"
GOOD = (UNAFFECTED, REPAIRED, BACK, REMEDY, GONE)
BAD = (STUCK, WORSE, LEFT, LOST, HANG, ABORT)

OF_GOING_BACK = re.compile(r"\b(lost|back|older|given up|gives up|instead|is used|computed again)\b")
OF_THE_LOG = re.compile(r"\blogs?\b|log\.jsonl|log\.\d")


@dataclass
class Case:
    """Something that happens to the base, and what the disk still holds afterwards."""

    name: str
    group: str
    blow: object  # called with the scene
    best: int | None = BASE_STEP  # the step that the bytes on the disk still allow; None: none
    more: tuple = ()  # arguments of the training that follows
    newest: int = BASE_STEP  # what log and manifests know of: going on below it must be said
    excused: frozenset = frozenset()  # steps whose values in the log nobody could know to be wrong
    program: object = None  # instead of the scene's


@dataclass
class Verdict:
    kind: str
    why: str = ""
    back: int = 0  # steps given up
    lives: list = field(default_factory=list)  # what was run, in order

    @property
    def bad(self):
        return self.kind in BAD


def verdict_on_log(scene, case, said):
    """Nothing when RUN/log.jsonl is right; else what is wrong, and whether it was said."""
    check = check_log(scene.work / "run/log.jsonl", scene.reference, LAST_STEP)
    check.wrong = [step for step in check.wrong if step not in case.excused]
    problems = check.problems()
    if not problems:
        return None
    kind = REPAIRED if any(OF_THE_LOG.search(line) for line in said) else LOST
    return Verdict(kind, "log.jsonl: " + "; ".join(problems))


def verdict_on_success(scene, case, life):
    start = life.start_step()
    said = life.said(scene.ordinary)
    if start is None:
        return Verdict(LOST, "it ended well and never said from where it went on")
    asked = {"--resume-from", "--go-back"} & set(life.command)
    told = asked or any(OF_GOING_BACK.search(line) for line in said)
    if start < case.newest and not told:
        return Verdict(LOST, f"went on from step {start} instead of {case.newest} without a word", case.newest - start)
    if start < (case.best or 0):
        return Verdict(WORSE, f"went on from step {start}; the disk still holds {case.best}", case.newest - start)
    later = check_log(scene.work / "run/log.jsonl", scene.reference, LAST_STEP).wrong
    if any(step > start for step in later):
        return Verdict(LOST, f"from step {start} on it computed other values, at steps {later}")
    on_log = verdict_on_log(scene, case, said)
    if on_log:
        return on_log
    if start < case.newest:
        return Verdict(BACK, f"from step {start}", case.newest - start)
    return Verdict(REPAIRED if said else UNAFFECTED)


def verdict_on_life(scene, case, life):
    """Of a life that was not refused; None for a refusal."""
    if life.code is None:
        return Verdict(HANG, f"not ended after {life.seconds:.0f} s")
    if is_abort(life):
        return Verdict(ABORT, f"ended with {life.code}")
    # A summary that cannot be written is said at the very end, when all is committed.
    if life.code == 0 or (life.code == 4 and life.committed() == LAST_STEP):
        return verdict_on_success(scene, case, life)
    return None
