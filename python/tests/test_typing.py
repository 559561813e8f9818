"""The stubs: strictly typed, and as the extension is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=False)


def test_the_package_its_tests_and_examples_are_strictly_typed() -> None:
    done = mypy("mypy", "--no-incremental", "-p", "torc")
    assert done.returncode == 0, done.stdout + done.stderr
    done = mypy("mypy", "--no-incremental", "tests", "examples", "bench.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_name_what_the_extension_has() -> None:
    done = mypy("mypy.stubtest", "torc._torc", "--ignore-missing-stub", "--concise")
    assert done.returncode == 0, done.stdout + done.stderr
