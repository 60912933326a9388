"""Every code block of the pages runs as it is printed, and what it prints is compared; run_page.py says how."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import mycc
import pytest

from . import run_page
from .pages import PAGES, ROOT
from .run_page import LANGUAGES, SHOWN, Failure, fits, steps

GUIDES = [page for page in PAGES if "decisions" not in page.parts]
RUN = [p for p in GUIDES if any(s.not_run is None and s.language not in SHOWN for s in steps(p))]
SIGNATURE = "a signature, which the tests compare"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path) -> None:
    program = Path(run_page.__file__)
    done = subprocess.run([sys.executable, str(program), str(page)], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_has_a_language_and_every_reason_is_one(page: Path) -> None:
    for step in steps(page):
        assert step.language in LANGUAGES, f"{page}:{step.line}: '{step.language}' is none of {sorted(LANGUAGES)}"
        assert step.not_run is None or len(step.not_run.split()) >= 2, f"{page}:{step.line}: not run, but why?"


def test_signatures_are_those_of_the_functions() -> None:
    found = [s for page in GUIDES for s in steps(page) if s.not_run == SIGNATURE]
    assert len(found) >= 3
    for step in found:
        called = re.match(r"(?:\w+ = )?mycc\.(\w+)\((.*)\)", step.text, re.DOTALL)
        assert called, step.text
        shown = re.findall(r"(\w+)(?==|,|$)", re.sub(r"=(\"[^\"]*\"|\(\)|[\w.]+)", "=", called[2]))
        real = list(inspect.signature(getattr(mycc, called[1])).parameters)
        if called[2].rstrip().endswith("..."):
            assert set(shown) <= set(real), called[1]
        else:
            assert shown == real, called[1]


def test_a_page_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n<!-- setup python\nx = 1\n-->\n\n```python\nprint(x + 1)\n```\n\n```output\n2\n```\n\n"
        "<!-- not run: it would fail -->\n```bash\nfalse\n```\n\n```console\n$ echo 'took 3.5 s'\ntook 1 s\n```\n"
    )
    run_page.run(page)
    for before, after, line in (("x + 1", "str()", 12), ("took 1 s", "used 1 s", 21), ("x = 1", "y = 1", 8)):
        wrong = tmp_path / "wrong.md"
        wrong.write_text(page.read_text().replace(before, after))
        with pytest.raises(Failure, match=rf"wrong\.md:{line}: "):
            run_page.run(wrong)


def test_open_places_of_outputs() -> None:
    assert fits("a 1.5 b\nx\ny\nend\n", "a ... b\n...\nend\n")
    assert not fits("a 1.5 c\nend\n", "a ... b\n...\nend\n")
    assert not fits("end\nmore\n", "end\n")
    assert fits("took 3.5e-07 s on x86-64-v4+vnni\n", "took 1 s  on x86-64-v3\n", exact=False)
    assert not fits("took long\n", "took 1\n", exact=False)
    assert fits("torch 2.13.0+cpu, 1..64\n", "torch 2.11.0..., 1..8\n", exact=False)


def test_the_front_pages_name_real_commands_and_files() -> None:
    """A fast look at the README and the tutorial: the commands exist with the options that are given them."""
    for page in (ROOT / "README.md", ROOT / "docs/tutorial.md"):
        lines = [line.removeprefix("$ ") for s in steps(page) for line in s.text.splitlines()]
        commands = [line.split("#")[0].split() for line in lines if line.removeprefix("$ ").startswith("mycc ")]
        assert len(commands) >= 5
        for _, name, *words in commands:
            text = command_help(name)
            for word in words:
                if word.startswith("--"):
                    assert word in text, f"{page.name}: mycc {name} has no option {word}"
                elif word.startswith("examples/"):
                    assert (ROOT / word).exists(), f"{page.name}: there is no {word}"


def command_help(name: str) -> str:
    from mycc.cli import app
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
