#!/usr/bin/env python3
"""tools/test_report.py, asked of reports/: what ctest 3.25 writes of a few cases."""
from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parents[1] / "tools/test_report.py"
SKIPPED = """\
skipped, by reason:
  no <GPU>
    core:Cuda.Copies
    engine:Cuda.Trains/1, where GetParam() = 7
  no io_uring
    restricted:no_uring:swap: 2 cases, e.g. Ring.Registers
  no reason was given
    core:Cuda.Waits
  restricted: no seccomp here
    restricted:no_uring:aio

"""


class TestReport(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name) / "build"

    def ran(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, PROGRAM, *map(str, arguments)], capture_output=True, encoding="utf-8")

    def count(self, name: str, status: int) -> str:
        return self.ran("count", HERE / f"reports/{name}.xml", status).stdout.strip()

    def of_preset(self, preset: str, name: str) -> Path:
        report = self.build / preset / "junit.xml"
        report.parent.mkdir(parents=True)
        shutil.copy(HERE / f"reports/{name}.xml", report)
        return report

    def told(self, **reports: str) -> str:
        return self.ran("tell", *(self.of_preset(preset, name) for preset, name in reports.items())).stdout

    def test_counts_passed_failed_and_skipped(self) -> None:
        self.assertEqual(self.count("passed", 0), "1 0 0")
        self.assertEqual(self.count("failed", 8), "1 1 0")
        self.assertEqual(self.count("crashed", 8), "0 1 0")
        self.assertEqual(self.count("disabled", 0), "1 0 1")

    def test_counts_what_a_test_that_ran_left_out_beside_it(self) -> None:
        self.assertEqual(self.count("skipped", 0), "3 0 6")

    def test_a_failure_that_no_case_shows_counts_as_one(self) -> None:
        self.assertEqual(self.count("passed", 8), "1 1 0")
        self.assertEqual(self.count("not-there", 8), "0 1 0")
        self.assertEqual(self.count("not-there", 0), "0 0 0")

    def test_a_report_that_is_cut_off_is_no_success(self) -> None:
        report = self.of_preset("release", "passed")
        report.write_text(report.read_text().removesuffix("</testsuite>\n"))
        ended = self.ran("count", report, 0)
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, r"^test_report: .*junit\.xml cannot be read: .*\n$")

    def test_names_what_was_skipped_once_by_reason(self) -> None:
        self.assertEqual(self.told(release="skipped", dev="skipped"), SKIPPED)

    def test_of_what_was_disabled_it_says_nothing(self) -> None:
        self.assertEqual(self.told(release="disabled"), "")

    def test_tells_the_last_lines_of_what_failed(self) -> None:
        lines = [*(f"line {number}" for number in range(1, 30)), '1 < 2 && "last"']
        self.assertEqual(self.told(release="failed"), "\n".join(
            ["FAILED in release: Bad.<One>/7", *(f"    {line}" for line in lines), "", ""]))

    def test_names_a_crash_that_said_nothing(self) -> None:
        self.assertEqual(self.told(release="passed", tsan="crashed"), "FAILED in tsan: Mute\n\n")

    def test_what_was_skipped_comes_before_what_failed(self) -> None:
        self.assertEqual(self.told(dev="crashed", release="skipped"), SKIPPED + "FAILED in dev: Mute\n\n")

    def test_without_a_report_there_is_nothing_to_tell(self) -> None:
        self.assertEqual(self.ran("tell", self.build / "dev/junit.xml").stdout, "")
        self.assertEqual(self.ran("tell").stdout, "")


if __name__ == "__main__":
    unittest.main()
