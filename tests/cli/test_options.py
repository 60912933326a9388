"""Options, observers and errors as values."""

from __future__ import annotations

import io
import pickle

import pytest
from mycc import CompileError, Error
from mycc.compiler.observe import DumpObserver, TimingObserver, running_stage
from mycc.compiler.options import CompileOptions, parse_settings, parse_targets
from mycc.compiler.progress import ProgressObserver
from mycc.runtime.errors import CompilerFault


def test_settings():
    options = CompileOptions.of(options=["schedule.fuse=off", "verify.factor=3"], threads=2)
    assert (options.schedule.fuse, options.numerics.factor, options.threads) == (False, 3.0, 2)
    assert CompileOptions.of(options={"schedule.fuse": False}).schedule == options.schedule


def test_fingerprint_follows_what_alters_code():
    plain = CompileOptions.of()
    assert plain.fingerprint() == CompileOptions.of(threads=3, jobs=2, verify=False).fingerprint()
    assert plain.fingerprint() != CompileOptions.of(options=["schedule.fuse=false"]).fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuse", "cannot read the option 'fuse'\n  It looks like schedule.fuse=false."),
        ("shedule.fuse=1", "unknown option 'shedule.fuse'\n  Did you mean schedule.fuse?"),
        ("verify.seed=x", "option verify.seed is a whole number, not 'x'"),
        ("verify.factor=nan", "option verify.factor has to be a number from 0, not nan"),
        ("verify.floor=-1", "option verify.floor has to be a number from 0, not -1.0"),
    ],
)
def test_wrong_settings(text, message):
    with pytest.raises(CompileError) as caught:
        parse_settings([text])
    assert str(caught.value) == message


def test_targets():
    names = [t.name for t in parse_targets("cpu:x86-64-v2, cpu:x86-64-v3,cpu:x86-64-v2")]
    assert names == ["cpu:x86-64-v2", "cpu:x86-64-v3"]
    assert len(parse_targets("cpu")) == 1
    names = [t.name for t in parse_targets("cuda:sm_90,cpu:x86-64-v3,cuda:ptx")]
    assert names == ["cuda:sm_90", "cpu:x86-64-v3", "cuda:ptx"]
    with pytest.raises(CompileError, match="no backend for it"):
        parse_targets("hip:gfx942")
    with pytest.raises(CompileError, match="unknown target 'cuda:sm_75'"):
        parse_targets("cuda:sm_75")
    with pytest.raises(CompileError, match="no target"):
        parse_targets("")


def test_ineffective_options():
    assert CompileOptions.of(mode="reduce-overhead", tune=True).ineffective()[0].startswith("mode 'reduce-overhead'")
    assert CompileOptions.of(mode="max-autotune", strict=True).tuning
    with pytest.raises(CompileError, match="Without strict this is a warning"):
        CompileOptions.of(mode="reduce-overhead", strict=True)
    with pytest.raises(CompileError, match="give one of them only"):
        CompileOptions.of(tune=True, lock="model.pkg.lock")


def test_observers_see_every_stage(tmp_path):
    class Value:
        def format(self):
            return "a graph"

    stream = io.StringIO()
    timing = TimingObserver()
    observers = [timing, ProgressObserver(stream), DumpObserver(tmp_path / "dump")]
    with running_stage(observers, "capture") as stage:
        stage.value, stage.summary = (Value(), Value()), "412 nodes"
    with running_stage(observers, "graph") as stage:
        stage.value = "text"
    with pytest.raises(CompilerFault, match=r"'lower'.*ZeroDivisionError"), running_stage(observers, "lower"):
        raise ZeroDivisionError
    assert [(s.name, s.summary) for s in timing.stages] == [("capture", "412 nodes"), ("graph", "")]
    assert stream.getvalue() == "capture     0.0 s  412 nodes\ngraph       0.0 s\n"
    files = {p.name: p.read_text() for p in (tmp_path / "dump").iterdir()}
    assert files == {"01-capture.txt": "a graph\n\na graph\n", "02-graph.txt": "text\n"}


def test_a_terminal_shows_what_a_long_stage_works_on() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for quiet in (False, True):
        stream = Terminal()
        progress = ProgressObserver(stream, quiet=quiet)
        with running_stage([progress], "peer") as stage:
            progress.stage_works_on("peer", "ONNX Runtime prepares the model")
            stage.summary = "ready"
        assert ("ONNX Runtime prepares the model" in stream.getvalue()) is not quiet
        assert ("ready" in stream.getvalue()) is not quiet


def test_errors_print_their_details_and_survive_pickling():
    error = CompileError("cannot compile 1 operator", details=["aten::foo  model.py:3"], hint="Rewrite it.")
    assert str(error) == "cannot compile 1 operator\n  aten::foo  model.py:3\n  Rewrite it."
    assert isinstance(error, Error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (CompileError, str(error))
