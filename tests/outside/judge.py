"""Lets something happen to the base, runs the training on it, and judges how that ended."""
import remedies
from verdict import ABORT, GONE, HANG, LEFT, LOST, REMEDY, STUCK, WORSE, Verdict, verdict_on_life


def judge_refusal(scene, case, life):
    """Tries each remedy that the message names, and takes the one that gives most."""
    scene.keep_refused()
    tried = remedies.try_all(scene, case, life)
    lives = [life] + [one for attempt in tried for one in attempt.lives]
    for attempt in tried:
        if attempt.verdict and attempt.verdict.kind in (HANG, ABORT):
            return Verdict(attempt.verdict.kind, f"in the remedy '{attempt.name}': {attempt.verdict.why}", 0, lives)
    worked = [attempt for attempt in tried if attempt.start is not None]
    own = [attempt for attempt in worked if not attempt.needs_backup]
    tale = "; ".join(attempt.tale() for attempt in tried) or "the message names nothing that can be done"
    best = max(own, key=lambda attempt: attempt.start, default=None)
    if best and best.start >= (case.best or 0):
        if best.verdict.kind == LOST:
            return Verdict(LOST, f"remedy '{best.name}': {best.verdict.why}", 0, lives)
        return Verdict(REMEDY, tale, case.newest - best.start, lives)
    if case.best is None:
        return Verdict(GONE, tale, 0, lives)
    if best:
        return Verdict(WORSE, f"the disk still holds step {case.best}; {tale}", case.newest - best.start, lives)
    return Verdict(STUCK, f"the disk still holds step {case.best}; {tale}", 0, lives)


def names_in(directory):
    """All that lies there, but for what is written about the case itself."""
    names = {path.relative_to(directory) for path in directory.rglob("*")}
    return {name for name in names if not name.name.startswith(".std")}


def judge(scene, case):
    scene.set_up()
    case.blow(scene)
    before = names_in(scene.work)
    life = scene.train(*case.more, program=case.program)
    verdict = verdict_on_life(scene, case, life)
    if verdict is None:
        made = sorted(str(name) for name in names_in(scene.work) ^ before)
        if made:
            return Verdict(LEFT, f"refused, and made or removed {', '.join(made)}", 0, [life])
        return judge_refusal(scene, case, life)
    verdict.lives = [life]
    return verdict
