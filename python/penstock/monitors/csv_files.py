"""Events in files of CSV, where and as DeepSpeed has them: OUTPUT_PATH/JOB_NAME/Train_Samples_lr.csv."""
from __future__ import annotations

import csv
import os
from collections.abc import Sequence

from .events import Event


class CsvFiles:
    """A file for each name, with the columns `step`, which counts samples, and the name's last word. Lines are
    appended, and each file is closed again, with each step: a process that is killed loses none of what it had
    written. A file that is there is gone on with; its first line is not written twice."""

    def __init__(self, output_path: str, job_name: str) -> None:
        self._folder = os.path.abspath(os.path.join(output_path, job_name))

    def check(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        if not os.access(self._folder, os.W_OK):
            raise PermissionError(f"{self._folder}: no files may be made there")

    def open(self) -> None:
        """There is nothing to open."""

    def write(self, events: Sequence[Event]) -> None:
        for name, value, samples in events:
            path = os.path.join(self._folder, name.replace("/", "_").replace(" ", "_") + ".csv")
            with open(path, "a", newline="", encoding="utf-8") as file:
                lines = csv.writer(file)
                if file.tell() == 0:
                    lines.writerow(["step", name.rpartition("/")[2]])
                lines.writerow([samples, value])

    def close(self) -> None:
        """Nothing is open."""
