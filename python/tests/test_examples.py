"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torc
from nodes import PATIENCE_S

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [("counter", "counted to 100\n"), ("crawl", "500 visits, 100 first ones, 100 pages known\n")],
)
def test_an_example(playground: list[str], name: str, said: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *playground]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == (said, "")


def test_the_example_with_dask(tmp_path: Path) -> None:
    pytest.importorskip("dask.dataframe", reason="pip install './python[engines]'")
    command = [sys.executable, str(EXAMPLES / "build_dask.py"), str(tmp_path / "pages")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    built = torc.Generation(tmp_path / "pages")
    assert done.stdout.startswith(f"kvctl generation attach {(tmp_path / 'pages').as_uri()}/"), done.stderr
    assert (len(built), built.get(b"https://example.org/7")) == (10_000, b"page 7")
    assert len(list((tmp_path / "pages").glob("*.part"))) == 8


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"build_dask", "counter", "crawl"}
