"""The user nobody, to whom permissions mean something."""
import os
import shutil
import subprocess
from pathlib import Path

from program import Program

ID = 65534


class Nobody:
    def __init__(self, program):
        prefix = ["setpriv", f"--reuid={ID}", f"--regid={ID}", "--clear-groups"]
        self.program = Program(program.path, program.deadline_s, prefix)

    @staticmethod
    def if_possible(program, scene):
        """Nothing where we are not root, or where nobody cannot run the program or reach the directory."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            return None
        nobody = Nobody(program)
        try:
            seen = nobody.program.run(scene.work, ["--version"])
            listed = subprocess.run([*nobody.program.prefix, "ls", str(scene.work)], capture_output=True)
            return nobody if seen.code == 0 and listed.returncode == 0 else None
        except OSError:
            return None

    @staticmethod
    def give(scene):
        """All of the work is nobody's now."""
        for path in [scene.work, *Path(scene.work).rglob("*")]:
            os.chown(path, ID, ID, follow_symlinks=False)
