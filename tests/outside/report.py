"""What happened, counted by class, and every bad case with what was printed and how to run it again."""
from collections import Counter, defaultdict

import verdict as verdicts
from program import BEGUN, RESUMED

KINDS = [*verdicts.GOOD, *verdicts.BAD]
TROUBLES = ["LOST", "LOG", "PILE", "REFUSED", "HANG", "ABORT", "EMPTY"]
SHOWN_LINES = 12


class Report:
    def __init__(self, again, out):
        self.again = again  # the command that runs one case again, given its name
        self.out = out
        self.counts = defaultdict(Counter)  # group → kind → how many
        self.bad = []
        self.ordinary = set()  # shapes of lines that say nothing new
        self.lines = []

    def say(self, name, line):
        """A result, in the form that tests/long.sh keeps in tests/RESULTS.md."""
        self.lines.append(f"RESULT {name}: {line}")
        self.print(f"{name}: {line}")

    def print(self, line):
        print(line, file=self.out, flush=True)

    def add(self, case_name, group, verdict):
        self.counts[group][verdict.kind] += 1
        if verdict.bad:
            self.add_bad(group, case_name, verdict.kind, verdict.why, verdict.lives)
        else:
            back = f" ({verdict.back} steps back)" if verdict.back else ""
            self.print(f"{verdict.kind:20} {case_name}{back} {verdict.why}")

    def add_trouble(self, group, trouble):
        self.counts[group][trouble.kind] += 1
        self.add_bad(group, trouble.name, trouble.kind, trouble.why, trouble.lives)

    def add_bad(self, group, name, kind, why, lives):
        self.bad.append((group, name, kind))
        self.print(f"\n*** {kind}: {name}: {why}")
        for life in lives:
            self.print(f"    $ {' '.join(life.command[-8:])}   → {life.code}")
            for line in self.telling(life)[-SHOWN_LINES:]:
                self.print(f"      | {line}")
            for line in life.output.splitlines()[-SHOWN_LINES:]:
                self.print(f"      > {line}")
        self.print(f"    again: {self.again(name)}\n")

    def telling(self, life):
        """Where it went on from, and what it does not say when all is well."""
        start = [found.string for pattern in (BEGUN, RESUMED) for found in life.matches(pattern)]
        return start + [line for line in life.said(self.ordinary) if line not in start]

    def table(self):
        kinds = [kind for kind in dict.fromkeys([*KINDS, *TROUBLES]) if any(self.counts[g][kind] for g in self.counts)]
        width = max([len(group) for group in self.counts], default=5)
        self.print("")
        self.print(" " * width + "  cases  " + "  ".join(kinds))
        for group, counts in self.counts.items():
            cells = "  ".join(f"{counts[kind] or '.':>{len(kind)}}" for kind in kinds)
            self.print(f"{group:{width}}  {sum(counts.values()):5}  {cells}")
        self.print("")

    def sums(self):
        """A result for each group of cases that end in one of the classes."""
        for group, counts in self.counts.items():
            words = ", ".join(f"{many} {kind}" for kind, many in counts.most_common())
            if not group.startswith(("kills", "power cuts")):
                self.lines.append(f"RESULT damage, {group}: {sum(counts.values())} cases: {words}")
            else:
                self.lines.append(f"RESULT {group}: found {words}")

    def end(self):
        self.table()
        self.sums()
        for line in self.lines:
            self.print(line)
        kinds = ", ".join(sorted({kind for _, _, kind in self.bad}))
        self.print(f"{len(self.bad)} bad: {kinds}" if self.bad else "nothing bad was found")
        return 1 if self.bad else 0
