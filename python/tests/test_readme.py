"""The README's programs run as they are written, but for the ports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodes import run_python

README = Path(__file__).parents[1] / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_there_are_two() -> None:
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("program", PROGRAMS, ids=["threads", "asyncio"])
def test_a_program_of_the_readme(playground: list[str], program: str) -> None:
    for number, endpoint in enumerate(playground):
        program = program.replace(f"127.0.0.1:740{number + 1}", endpoint)
    done = run_python(program)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
