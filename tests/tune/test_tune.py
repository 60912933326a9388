"""Choices for kernels: keys, candidates, lock files, the search, and compiles that measure and repeat."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc import CompileError
from mycc.compiler.codegen.cpu.machine_header import render_machine
from mycc.compiler.codegen.cpu.render import KernelPool
from mycc.compiler.ir.structured import WINOGRAD_FORMS, Conv, Gemm
from mycc.compiler.tune.choices.choices import COST_MODEL, NO_CHOICES, SHARED, Choice, Choices
from mycc.compiler.tune.choices.keys import kernel_key
from mycc.compiler.tune.choices.space import (
    ALGORITHMS,
    FAMILIES,
    Situation,
    candidates,
    split,
    unknown_part,
)
from mycc.compiler.tune.search import search as searching
from mycc.compiler.tune.search.lock import (
    Lock,
    LockedKernel,
    Trial,
    fit,
    format_lock,
    read_lock,
    write_lock,
)
from mycc.compiler.tune.search.search import Draft, search
from mycc.runtime.inspect import inspect_package
from mycc.runtime.measure import bench_package
from mycc.runtime.render import render_bench, render_inspection
from rich.console import Console
from torch import nn
from torch.nn import functional as F

from ..helpers.kernel_numbers import constants
from ..helpers.programs import scheduled

KERNELS = Path(__file__).resolve().parents[2] / "kernels"

x = torch.randn(8, 32)
image = torch.randn(1, 32, 14, 14).to(memory_format=torch.channels_last)
heads = torch.randn(1, 2, 48, 16)
BOTH = Situation(threads=2)

# -- keys and candidates ----------------------------------------------------------------------------------------------

NODES: dict[str, tuple[Callable[..., Any], tuple[nn.Module, ...], tuple[torch.Tensor, ...], str]] = {
    "gemm": (lambda up, a: F.relu(up(a)), (nn.Linear(32, 48),), (x,), "gemm f32 m=8 n=48 k=32"),
    "gemm-unpacked": (lambda a: a @ a.mT, (), (x,), "gemm-unpacked f32 m=8 n=8 k=32"),
    "conv": (
        lambda conv, a: conv(a), (nn.Conv2d(32, 64, 3, padding=1),), (image,),
        "conv f32 in=1x14x14x32 out=14x14x64 kernel=3x3 pad=1x1",
    ),
    "strided conv": (
        lambda conv, a: conv(a), (nn.Conv2d(32, 32, 3, 2, 1),), (image,),
        "conv f32 in=1x14x14x32 out=7x7x32 kernel=3x3 stride=2x2 pad=1x1",
    ),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (), (heads,),
        "attention f32 batch=1 heads=2 kv_heads=2 queries=48 keys=48 size=16 causal",
    ),
    "rows": (lambda a: torch.softmax(a, -1), (), (x,), "rows f32 softmax rows=8 row=32"),
}  # fmt: skip


@pytest.mark.parametrize("case", NODES)
def test_keys(case: str) -> None:
    function, parts, inputs, wanted = NODES[case]
    nodes = scheduled(function, *inputs, parts=parts).program.nodes
    assert wanted in [kernel_key(node) for node in nodes]


def test_the_key_of_dynamic_sizes_names_them() -> None:
    (node,) = scheduled(lambda up, a: up(a), x, parts=(nn.Linear(32, 48),), dynamic=True).program.nodes
    assert kernel_key(node) == "gemm f32 m=batch n=48 k=32"


@pytest.mark.parametrize("case", NODES)
def test_candidates_are_known_and_differ(case: str) -> None:
    function, parts, inputs, wanted = NODES[case]
    nodes = scheduled(function, *inputs, parts=parts).program.nodes
    node = next(node for node in nodes if kernel_key(node) == wanted)
    found = candidates(node, BOTH)
    assert found
    assert len(set(found)) == len(found)
    assert COST_MODEL not in found
    assert [unknown_part(wanted, choice) for choice in found] == [None] * len(found)


def test_candidates_leave_out_what_changes_nothing() -> None:
    (row,) = scheduled(lambda up, a: up(a), x[:1], parts=(nn.Linear(32, 48),)).program.nodes
    assert candidates(row, BOTH) == ()  # one row is read at the speed of memory
    (softmax,) = scheduled(lambda a: torch.softmax(a, -1), x).program.nodes
    assert candidates(softmax, Situation(threads=1)) == ()
    (deep,) = scheduled(lambda up, a: up(a), torch.randn(8, 768), parts=(nn.Linear(768, 48),)).program.nodes
    depths = [choice.get("depth", 0) for choice in candidates(deep, BOTH) if choice.get("depth", 0)]
    assert depths == [384, 192, 768]  # 512 cuts 768 into two blocks, as 384 does


def test_winograd_is_a_candidate_where_the_options_allow_it() -> None:
    function, parts, inputs, _ = NODES["conv"]
    node = next(n for n in scheduled(function, *inputs, parts=parts).program.nodes if isinstance(n, Conv))
    for stride in (1, 2):
        strided = replace(node, window=replace(node.window, stride=(stride, stride)))
        for option, known in ALGORITHMS.items():
            found = {choice.get("algorithm", "") for choice in candidates(strided, Situation(1, option))}
            fitting = {a for a in known if a == "direct" or WINOGRAD_FORMS[a].stride == stride}
            assert (found - {""}) | {node.algorithm} == fitting | {node.algorithm}


@pytest.mark.parametrize(
    ("family", "struct", "header"),
    [
        ("gemm", "GemmTuning", "gemm/block.h"),
        ("conv", "ConvTuning", "conv/args.h"),
        ("attention", "AttentionTuning", "attention/packed.h"),
    ],
)
def test_the_first_value_is_the_cost_models(family: str, struct: str, header: str) -> None:
    text = (KERNELS / header).read_text().split(f"struct {struct} {{")[1].split("\n};")[0]
    known = constants(render_machine("x86-64-v3"))
    numbers = {name: int(known[value]) for name, value in re.findall(r"int64_t (\w+) = (k\w+);", text)}
    (found,) = (f for f in FAMILIES if f.name == family)
    firsts = {p.name: p.values[0] for p in found.parameters if p.stage == "codegen"}
    assert firsts == {name: numbers[name] for name in firsts}


def test_parts_of_a_choice() -> None:
    for family in FAMILIES:
        assert len({parameter.name for parameter in family.parameters}) == len(family.parameters)
    both = Choice.of({"depth": 256, "algorithm": "direct"})
    assert split(both, "lower") == Choice.of({"algorithm": "direct"})
    assert split(both, "codegen") == Choice.of({"depth": 256})
    assert unknown_part("gemm-unpacked f32 m=1", Choice.of({"depth": 192})) is None
    assert unknown_part("gemm f32 m=1", Choice.of({"depth": 7})) == "depth 7"
    assert unknown_part("gemm f32 m=1", Choice.of({"pixels": 128})) == "pixels 128"
    assert unknown_part("conv f32 in=1", Choice.of({"pixels": 128, "depth": 192})) == "depth 192"


# -- code generation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "choice", "texts"),
    [
        ("gemm", {"depth": 192}, ["GemmTuning tuning;", "tuning.depth = tuning_depth;", ", tuning);"]),
        ("gemm-unpacked", {"group_bytes": 16384}, ["tuning.group_bytes = tuning_group_bytes;", ", tuning);"]),
        ("strided conv", {"pixels": 128}, ["ConvTuning tuning;", "tuning.pixels = tuning_pixels;", ", tuning);"]),
        ("attention", {"key_block": 128}, ["AttentionTuning tuning;", "attention(host, args, NoScore(), tuning);"]),
        ("rows", {"task": 4096}, [", tuning_task), [=]"]),
    ],
)
def test_a_choice_is_an_argument_of_the_kernel(case: str, choice: dict[str, int], texts: list[str]) -> None:
    function, parts, inputs, wanted = NODES[case]
    s = scheduled(function, *inputs, parts=parts)
    name, kernel = next((n, k) for n, k in zip(s.names, s.kernels, strict=True) if kernel_key(k.node) == wanted)
    pool = KernelPool()
    plain, tuned = pool.call(name, kernel), pool.call(name, kernel, Choice.of(choice))  # type: ignore[arg-type]
    ((field, value),) = choice.items()
    assert [(p.name, p.size) for p in tuned.params if p not in plain.params] == [(f"tuning_{field}", str(value))]
    assert all(text in tuned.kernel.source for text in texts)
    assert "tuning" not in plain.kernel.source
    other = pool.call(name, kernel, Choice.of({field: value + 16}))
    assert other.kernel is tuned.kernel  # another value is another argument of the same function


# -- lock files -------------------------------------------------------------------------------------------------------

KEY, OTHER = "gemm f32 m=8 n=48 k=32", "rows f32 softmax rows=8 row=32"
ROW = LockedKernel(Choice.of({"depth": 256}), (Trial(COST_MODEL, 12.5), Trial(Choice.of({"depth": 256}), 11.0)))
LOCK = Lock("1.0", {"cpu:x86-64-v3": {KEY: ROW, OTHER: LockedKernel(COST_MODEL)}}, {"cpu": "A", "cores": 2}, 2,
            {"cost_model": 20.0, "chosen": 18.0})  # fmt: skip
PATH = Path("m.lock")


def fitting(lock: Lock = LOCK, version: str = "1.0", targets: tuple[str, ...] = ("cpu:x86-64-v3",),
            keys: tuple[str, ...] = (KEY, OTHER), winograd: str = "f23") -> tuple[Choices, list[str]]:  # fmt: skip
    return fit(lock, PATH, version, targets, keys, ALGORITHMS[winograd])


def test_keys_of_an_earlier_lock_are_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "m.lock"
    row = {"gemm-unpacked f32 m=4": LockedKernel(Choice.of({"depth": 256}))}
    write_lock(replace(LOCK, targets={"cpu:x86-64-v3": row}), path)
    new = read_lock(path)
    path.write_text(path.read_text().replace("gemm-unpacked", "gemm-free"))
    old = read_lock(path)
    assert old.targets == new.targets
    assert not new.warnings
    assert "'gemm-free' is now 'gemm-unpacked'" in old.warnings[0]


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_lock(LOCK, tmp_path / "m.lock")
    assert read_lock(tmp_path / "m.lock") == LOCK
    text = (tmp_path / "m.lock").read_text()
    assert json.loads(text)["targets"]["cpu:x86-64-v3"][KEY]["choice"] == {"depth": 256}
    assert '\n     {"choice": {"depth": 256}, "us": 11.0}\n' in text  # a line for each trial
    with pytest.raises(CompileError, match="cannot write the lock file"):
        write_lock(LOCK, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "'m.lock' is not a lock file: "),
        ("[]", "'m.lock' is not a lock file\n  mycc compile --tune writes one"),
        ('{"mycc_lock": 9}', "'m.lock' is a lock file of format 9"),
        ('{"mycc_lock": 1, "mycc": "1"}', "the lock file 'm.lock' is damaged: KeyError 'targets'"),
        (format_lock(LOCK).replace("256", "2.5"), "is damaged: ValueError depth is 2.5, not a whole number or a word"),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.lock").write_text(text)
    with pytest.raises(CompileError) as caught:
        read_lock(PATH)
    assert message in str(caught.value)


def test_a_lock_is_no_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "model.lock"
    os.mkfifo(fifo)
    for use in (lambda: read_lock(fifo), lambda: write_lock(Lock("0.1.0", {}), fifo)):
        with pytest.raises(CompileError, match="it is not a regular file"):
            use()


def test_a_lock_that_fits() -> None:
    choices, problems = fitting()
    assert problems == []
    assert choices.of("cpu:x86-64-v3", KEY) == Choice.of({"depth": 256})
    assert choices.made() == {"cpu:x86-64-v3": {KEY: {"depth": 256}}}
    assert NO_CHOICES.of("cpu:x86-64-v3", KEY) == COST_MODEL


def test_what_does_not_fit_is_said() -> None:
    _, problems = fitting(version="2.0", keys=(KEY, "new"))
    assert problems == [
        "the lock file 'm.lock' was written by mycc 1.0; this is 2.0",
        "1 of the model's kernels is not in the lock file 'm.lock'; the cost model chooses for: new",
        f"1 kernel of the lock file 'm.lock' is not in this model: {OTHER}",
    ]
    with pytest.raises(CompileError, match="is for another model: none of its 2 kernels is in this one"):
        fitting(keys=("new",))
    with pytest.raises(CompileError, match="has no choices for cpu:aarch64; it is for cpu:x86-64-v3"):
        fitting(targets=("cpu:aarch64",))


@pytest.mark.parametrize(
    ("key", "part", "value"), [(KEY, "depth", 7), (KEY, "speed", 9), ("conv f32 in=1", "algorithm", "winograd4")]
)
def test_a_choice_that_is_not_allowed_is_dropped(key: str, part: str, value: int | str) -> None:
    chosen = {key: LockedKernel(Choice.of({part: value})), OTHER: LockedKernel(COST_MODEL)}
    lock = replace(LOCK, targets={"cpu:x86-64-v3": chosen})
    choices, problems = fitting(lock, keys=(key, OTHER))
    assert problems == [f"the lock file 'm.lock' chooses {part} {value} for {key}: unknown, or the options forbid it"]
    assert choices.of("cpu:x86-64-v3", key) == COST_MODEL
    assert lock.choices(ALGORITHMS["f23"]).of("cpu:x86-64-v3", key) == COST_MODEL
    allowed = fitting(lock, keys=(key, OTHER), winograd="f43")[1]
    assert allowed == ([] if part == "algorithm" else problems)


# -- the search -------------------------------------------------------------------------------------------------------


class Timed:
    """A runner whose times come from a table: (key, choice) -> microseconds."""

    def __init__(self, draft: Draft, choices: Choices, table: Mapping[tuple[str, Choice], float]) -> None:
        self.times = {key: table[key, choices.of("cpu:t", key)] for keys in draft.keys.values() for key in keys if key}

    def beside(self, other: Timed) -> dict[str, tuple[float, float]]:
        return {key: (time, other.times[key]) for key, time in self.times.items()}

    def runs_beside(self, other: Timed) -> tuple[float, float]:
        return sum(self.times.values()), sum(other.times.values())


A, B = Choice.of({"depth": 256}), Choice.of({"depth": 192})


def found(tmp_path: Path, table: Mapping[tuple[str, Choice], float], tries: Mapping[str, tuple[Choice, ...]]) -> Lock:
    built: list[Choices] = []

    def build(choices: Choices) -> Draft:
        path = tmp_path / f"{len(built)}.pkg"
        path.write_text("")
        built.append(choices)
        return Draft(path, {"forward": (*tries, None)}, tries, {"forward": ()})

    lock = search(build, "cpu:t", 2, "1.0", lambda draft: Timed(draft, built[int(draft.path.stem)], table))  # type: ignore[arg-type,return-value]
    assert list(tmp_path.iterdir()) == []  # the drafts are gone
    return lock


def test_the_fastest_candidate_is_chosen(tmp_path: Path) -> None:
    table = {("p", COST_MODEL): 10.0, ("p", A): 9.0, ("p", B): 8.0, ("q", COST_MODEL): 10.0, ("q", A): 9.9}
    lock = found(tmp_path, table, {"p": (A, B), "q": (A,)})
    rows = lock.targets["cpu:t"]
    assert (rows["p"].choice, rows["q"].choice) == (B, COST_MODEL)  # 1 % is too little to leave the cost model
    assert [trial.us for trial in rows["p"].tried] == [10.0, pytest.approx(9.0), pytest.approx(8.0)]
    assert lock.run_us == {"cost_model": 20.0, "chosen": 18.0}
    assert (lock.threads, lock.version) == (2, "1.0")
    assert lock.machine["cores"] >= 1


def test_nothing_is_chosen_when_nothing_is_faster(tmp_path: Path) -> None:
    lock = found(tmp_path, {("p", COST_MODEL): 10.0, ("p", A): 11.0}, {"p": (A,)})
    assert lock.targets["cpu:t"]["p"].choice == COST_MODEL
    assert lock.run_us == {"cost_model": 10.0, "chosen": 10.0}
    assert found(tmp_path, {("p", COST_MODEL): 1.0, ("p", A): 0.9}, {"p": (A,)}).choices().made() == {}  # 0.1 us: noise


def test_a_choice_of_the_lowering_holds_for_all_targets(tmp_path: Path) -> None:
    direct = Choice.of({"algorithm": "direct"})
    lock = found(tmp_path, {("p", COST_MODEL): 10.0, ("p", direct): 5.0}, {"p": (direct,)})
    assert lock.choices().shared("p", "algorithm", "") == "direct"
    assert set(lock.targets) == {"cpu:t", SHARED}


# -- compiles ---------------------------------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3, padding=1)
        self.up = nn.Linear(32, 640)
        self.down = nn.Linear(640, 16)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.conv(pixels)).flatten(2).transpose(1, 2)
        return torch.softmax(self.down(F.gelu(self.up(y))), -1)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def tuned(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    patch = pytest.MonkeyPatch()
    patch.setattr(searching, "PAIR_SECONDS", 0.02)
    path = mycc.compile(model, (image,), out=folder / "model.pkg", tune=True, threads=2)
    patch.undo()
    assert sorted(p.name for p in folder.iterdir()) == ["model.pkg", "model.pkg.lock"]
    return path


def library(path: Path) -> list[bytes]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(("model.so", "weights.safetensors"))]
        return [archive.read(name) for name in names]


def forced(lock: Path, out: Path, **values: Any) -> dict[str, Any]:
    """A copy of a lock in which every product has these values, and all else is the cost model's."""
    value: dict[str, Any] = json.loads(lock.read_text())
    for rows in value["targets"].values():
        for key, row in rows.items():
            row["choice"] = values if key.startswith("gemm") else {}
    out.write_text(json.dumps(value))
    return value


def test_tuned_compile_keeps_a_lock_for_every_kernel(tuned: Path) -> None:
    lock = read_lock(tuned.with_name("model.pkg.lock"))
    facts = inspect_package(tuned)
    (target,) = [name for name in lock.targets if name != SHARED]
    assert target == facts["targets"][0]["target"]
    keys = {row["key"] for row in facts["entry_points"][0]["kernels"]}
    assert keys == set(lock.targets[target])
    assert all(row.tried and row.tried[0].us for row in lock.targets[target].values())
    assert facts["tuning"]["targets"] == lock.choices().made()
    assert lock.threads == facts["tuning"]["threads"] == 2


def test_a_lock_repeats_the_build(model: nn.Module, tuned: Path, tmp_path: Path) -> None:
    lock = tuned.with_name("model.pkg.lock")
    again = mycc.compile(model, (image,), out=tmp_path / "again.pkg", lock=lock, strict=True, threads=2)
    assert library(again) == library(tuned)
    assert inspect_package(again)["tuning"] == inspect_package(tuned)["tuning"]
    assert not (tmp_path / "again.pkg.lock").exists()
    assert mycc.load(again)(image).numpy().tobytes() == mycc.load(tuned)(image).numpy().tobytes()


def test_forced_choices_are_built_verified_and_shown(model: nn.Module, tuned: Path, tmp_path: Path) -> None:
    forced(tuned.with_name("model.pkg.lock"), tmp_path / "forced.lock", depth=192, group_bytes=16384)
    path = mycc.compile(model, (image,), out=tmp_path / "forced.pkg", lock=tmp_path / "forced.lock", strict=True)
    facts = inspect_package(path)
    assert facts["check"]["error"][0] < 1e-5
    (choices,) = facts["tuning"]["targets"].values()
    assert {key: value for key, value in choices.items() if key.startswith("gemm")} == {
        "gemm f32 m=196 n=640 k=32": {"depth": 192, "group_bytes": 16384},
        "gemm f32 m=196 n=16 k=640": {"depth": 192, "group_bytes": 16384},
    }
    text = shown(render_inspection(facts))
    assert "depth 192, group_bytes 16384" in text
    assert "kinds of kernels differ from the cost model's choice; measured on" in text
    assert "depth 192" in shown(render_bench(bench_package(path, threads=1, runs=3, kernels=True)))
    with zipfile.ZipFile(path) as archive:
        sources = [archive.read(name).decode() for name in archive.namelist() if name.endswith("program.cpp")]
    assert ", 192, 16384)" in sources[0]


def test_a_lock_that_does_not_fit_warns_and_with_strict_is_an_error(
    model: nn.Module, tuned: Path, tmp_path: Path
) -> None:
    value = forced(tuned.with_name("model.pkg.lock"), tmp_path / "old.lock", depth=7)
    (tmp_path / "old.lock").write_text(json.dumps({**value, "mycc": "0.0.1"}))
    out = tmp_path / "old.pkg"
    with pytest.raises(CompileError, match=r"was written by mycc 0\.0\.1") as caught:
        mycc.compile(model, (image,), out=out, lock=tmp_path / "old.lock", strict=True)
    assert "chooses depth 7 for gemm" in str(caught.value)
    assert "Without strict this is a warning" in str(caught.value)
    assert not out.exists()
    with pytest.warns(UserWarning, match="lock file") as told:
        mycc.compile(model, (image,), out=out, lock=tmp_path / "old.lock")
    assert ["was written by mycc 0.0.1" in str(told[0].message), "chooses depth 7" in str(told[1].message)] == [
        True
    ] * 2
    assert library(out) == library(mycc.compile(model, (image,), out=tmp_path / "plain.pkg"))


def test_a_lock_of_another_model_is_refused(tuned: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="is for another model"):
        mycc.compile(nn.Linear(8, 3).eval(), (torch.ones(1, 8),), out=tmp_path / "x.pkg",
                     lock=tuned.with_name("model.pkg.lock"))  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_tuning_needs_a_target_that_runs_here(tmp_path: Path) -> None:
    foreign = "cpu:x86-64-v2" if torch.backends.cpu.get_cpu_capability() == "DEFAULT" else "cpu:aarch64"
    with pytest.raises(CompileError, match="cannot tune: this machine runs none of"):
        mycc.compile(nn.Linear(8, 3).eval(), (torch.ones(1, 8),), out=tmp_path / "x.pkg", target=foreign, tune=True)


def shown(renderable: Any) -> str:
    console = Console(width=240)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_generated_code_of_two_targets_follows_their_own_choices() -> None:
    from mycc.compiler.capture import capture
    from mycc.compiler.codegen.generate import generate
    from mycc.compiler.lower import lower
    from mycc.compiler.machine.targets import parse_targets
    from mycc.compiler.schedule import schedule
    from mycc.compiler.weights.collect import collect_weights

    graph = capture(nn.Linear(32, 48), (x,))
    lowered = lower(graph)
    (s,) = [schedule(lowered.program)]
    (node,) = s.program.nodes
    assert isinstance(node, Gemm)
    targets = parse_targets("cpu:x86-64-v2,cpu:x86-64-v3")
    key = kernel_key(node)
    assert key is not None
    choices = Choices({"cpu:x86-64-v3": {key: Choice.of({"depth": 192})}})
    made = generate([graph], [s], collect_weights([lowered], ()), targets, choices)
    texts = {name: str(sources) for name, sources in made.sources.items()}
    assert "tuning_depth" not in texts["cpu:x86-64-v2"]
    assert "tuning.depth = tuning_depth;" in texts["cpu:x86-64-v3"]
