"""Manifests that lie or make no sense: refused before any code of the package runs, by both readers alike."""

from __future__ import annotations

import copy
import json
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.package.contract import contract_of
from mycc.runtime.archive import Archive
from mycc.runtime.errors import LoadError
from mycc.runtime.inspect import describe, inspect_package
from mycc.runtime.loader import Model

from .packages import ENTRIES, ISA, WEIGHTS, Draft, compile_program, with_manifest

STATE = [{"name": "count", "dtype": "i64", "shape": [4]}]
#: what the package is changed to claim -> the manifest's fields
LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a rank": lambda m: m["entry_points"][0]["inputs"][0]["shape"].append(1),
    "a dtype": lambda m: m["entry_points"][3]["inputs"][0].update(dtype="i32"),
    "a size": lambda m: m["entry_points"][6]["inputs"][0].update(shape=[2, 3, 4, 4]),
    "a formula": lambda m: m["entry_points"][4]["inputs"][1].update(shape=["seq", "2*batch"]),
    "a range": lambda m: m["entry_points"][0]["symbols"][0].update(max=1 << 40),
    "a symbol's place": lambda m: m["entry_points"][4]["symbols"][1].update(dim=0),
    "a name": lambda m: m["entry_points"][1]["inputs"][0].update(name="m"),
    "what is written to": lambda m: m["entry_points"][0].update(writes=[0]),
    "an output's dtype": lambda m: m["entry_points"][5]["outputs"][0].update(dtype="f64"),
    "no contract": lambda m: m.pop("contract") and m["entry_points"][0]["symbols"][0].update(min=0),
    "another contract": lambda m: m.update(contract=m["contract"][:-1] + "x"),
}


def contracted(folder: Path, *flags: str, target: str = f"cpu:{ISA}") -> Draft:
    """A package whose code says what it was compiled for."""
    data = WEIGHTS.nbytes + -WEIGHTS.nbytes % 64
    header = len(Draft(b"").header())
    contract = contract_of(ENTRIES, [], header, data)
    library = compile_program(folder / "contracted.so", f'-DCONTRACT="{contract}"', f'-DTARGET="{target}"', *flags)
    return Draft(library, changes={"contract": contract})


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where code of the package leaves a file when it is loaded."""
    return tmp_path_factory.mktemp("mark") / "loaded"


@pytest.fixture(scope="module")
def draft(mark: Path) -> Draft:
    return contracted(mark.parent, f'-DLOADED_MARK="{mark}"')


@pytest.fixture(scope="module")
def older(mark: Path) -> Draft:
    """A package as it was before there were contracts."""
    library = compile_program(mark.parent / "older.so", f'-DLOADED_MARK="{mark}"', f'-DTARGET="cpu:{ISA}"')
    return Draft(library, exact=False)


def changed(draft: Draft, change: Callable[[dict[str, Any]], object]) -> bytes:
    manifest = draft.manifest()
    change(manifest)
    return draft.build(manifest)


def test_a_package_with_its_contract_loads(library: Any, draft: Draft) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Model(library.load_memory(draft.build()))
    assert model(np.ones((1, 4), np.float32))[0].shape == (1, 4)


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_does_not_fit_the_code_is_refused(library: Any, draft: Draft, mark: Path, lie: str) -> None:
    mark.unlink(missing_ok=True)
    data = changed(draft, LIES[lie])
    _ = Archive(data).manifest  # consistent in itself
    with pytest.raises(LoadError, match=r"model\.so was compiled for another manifest\.json"):
        library.load_memory(data)
    assert not mark.exists()


def test_the_code_of_another_target_is_refused(library: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"model\.so does not fit manifest\.json"):
        library.load_memory(contracted(tmp_path, target="cpu:x86-64-v9").build())


def test_weights_and_state_of_another_size_are_refused(library: Any, draft: Draft, mark: Path) -> None:
    mark.unlink(missing_ok=True)
    shorter = Draft(draft.library, changes=draft.changes, weights=np.zeros(0, np.float32))
    stateful = Draft(draft.library, changes={**draft.changes, "state": STATE})
    for package in (shorter, stateful):
        with pytest.raises(LoadError, match=r"model\.so was compiled for another manifest\.json"):
            library.load_memory(package.build())
    assert not mark.exists()


def test_a_package_without_a_contract_loads_with_a_warning(library: Any, older: Draft) -> None:
    with pytest.warns(UserWarning, match="handmade was compiled by an older mycc"):
        model = Model(library.load_memory(older.build()))
    assert model(np.ones((1, 4), np.float32))[0].shape == (1, 4)
    missing = {**older.changes, "contract": "1:" + "0" * 64}
    with pytest.raises(LoadError, match=r"was compiled for another manifest\.json"):
        library.load_memory(Draft(older.library, changes=missing).build())
    later = {**older.changes, "contract": "2:of a later mycc"}
    library.load_memory(Draft(older.library, changes=later).build())


# -- malformed manifests ----------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**62, 2**63, 10**30, 1.5, -0.0, "", "*", "x", "\x1b[31m", "inf", "int",
    "cuda:sm_90", "é", [], {}, [1], ["*"], {"a": 1}, {"tuple": ["*"]}, {"dict": [["", "*"]]}, {"const": []},
    {"scalar": "int"}, {"namedtuple": "class", "fields": [["_1", "*"]]}, {"real": "nan"}, {"none": 0},
    {"object": "a.", "fields": [["x", {"const": None}]]}, {"tuple": [], "list": []}, "a" * 300,
]  # fmt: skip
#: keys whose value decides what comes of a whole package, and those that hashes protect
KEPT = {"sha256", "directory"}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        if key not in KEPT:
            yield (*path, key)
            yield from places(child, (*path, key))


def mutated(manifest: dict[str, Any], chance: random.Random, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The manifest with one to three values changed, taken away or doubled."""
    result = copy.deepcopy(manifest)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        *above, key = chance.choice(rows)
        place: Any = result
        try:
            for step in above:
                place = place[step]
            kind = chance.random()
            if kind < 0.2:
                del place[key]
            elif kind < 0.3 and isinstance(place, list):
                place.append(place[key])
            else:
                place[key] = copy.deepcopy(chance.choice(VALUES))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return result


def reason(call: Callable[[], object]) -> str:
    """Why a reader refuses; "" when it does not."""
    try:
        call()
    except LoadError as error:
        return str(error)
    return ""


#: what the native loader says once it has taken the manifest
LATER = re.compile(r"has no code for|does not run here|cannot load|does not fit manifest|launch has to be")


@pytest.mark.filterwarnings("ignore:.*compiled by an older mycc")
@pytest.mark.parametrize("seed", range(4))
def test_malformed_manifests_are_refused_before_code_runs(library: Any, older: Draft, mark: Path, seed: int) -> None:
    chance = random.Random(seed)
    manifest = json.loads(json.dumps(older.manifest()))
    manifest["entry_points"][0]["out_tree"] = {"dict": [["y", "*"], [3, {"text": "E.A"}]]}
    manifest["entry_points"][4]["in_tree"] = {
        "tuple": [{"tuple": ["*"], "names": ["a"]}, {"dict": [["b", {"namedtuple": "N", "fields": [["x", "*"]]}]]}]
    }
    manifest["check"]["error"] = [1e-7]
    rows = list(places(manifest))
    refused = 0
    for _ in range(150):
        data = older.build(mutated(manifest, chance, rows))
        mark.unlink(missing_ok=True)
        python = reason(lambda: Archive(data).check_members())  # noqa: B023 (called at once)
        native = reason(lambda: Model(library.load_memory(data)))  # noqa: B023
        if LATER.search(native) or not native:
            assert python == "", native
            describe(inspect_package(data))
        else:
            assert python != "", native
            assert not mark.exists()
            refused += 1
    assert refused > 60


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"format": 1', b'"format": 1, "format": 1', "an object has a key twice"),
        (b'"threads": 0', b'"threads": 0, "\\u0074hreads": 4', "an object has a key twice"),
        (b'"threads": 0', b'"threads": NaN', ""),
        (b'"threads": 0', b'"threads": 0, "x": Infinity', ""),
        (b'"threads": 0', b'"threads": 0, "x": "\xff"', ""),
        (b'"threads": 0', b'"threads": 0, "x": "\xed\xa0\x80"', ""),
        (b'"threads": 0', b'"threads": 0, "x": "\xc0\x80"', ""),
        (b'"threads": 0', b'"threads": 0, "x": "\\ud800"', ""),
        (b'"threads": 0', b'"threads": 0, "x\\u0000": 1', ""),
        (b'"threads": 0', b'"threads": 0, "x": 01', ""),
        (b'"threads": 0', b'"threads": 0, "x": ' + b"[" * 129 + b"]" * 129, "nested too deeply"),
        (b'"threads": 0', b'"threads": 0, "x": ' + b"[" * 50000, ""),
        (b'"threads": 0', b'"threads": 2147483648', "its number of threads makes no sense"),
    ],
)
def test_both_readers_refuse_what_is_no_json(library: Any, older: Draft, old: bytes, new: bytes, why: str) -> None:
    text = json.dumps({"threads": 0, **older.manifest()}).encode()
    good, bad = (with_manifest(older.members(), t) for t in (text, text.replace(old, new, 1)))
    for read in (library.load_memory, lambda data: Archive(data).manifest):
        assert reason(lambda: read(good)) == ""  # noqa: B023
        assert why in reason(lambda: read(bad)) != ""  # noqa: B023


@pytest.mark.parametrize(
    "new",
    [b"[" * 127 + b"]" * 127, b"9" * 5000, b"-9223372036854775808", b"1e999", b'"\\ud83d\\ude00"',
     b'"\xf4\x8f\xbf\xbf"', b'"\\\\u0000"', b"-0", b'{"": {"": 1}}'],
)  # fmt: skip
def test_both_readers_take_what_is_json(library: Any, older: Draft, new: bytes) -> None:
    text = json.dumps({"later": 0, **older.manifest()}).encode()
    data = with_manifest(older.members(), text.replace(b'"later": 0', b'"later": ' + new, 1))
    library.load_memory(data)
    _ = Archive(data).manifest


TRAINING: dict[str, Any] = {
    "optimizer": "SGD", "hyper": {"lr": [0.1, 0.2], "clip_norm": 1.0}, "groups": 2,
    "parameters": [{"name": "count", "group": 1}], "aliases": {"other": "count"}, "check_finite": False,
    "memory_budget": 0.4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"optimizer": ""}, "training.optimizer is not what it has to be"),
        ({"hyper": {"lr": "0.1"}}, "training.hyper.lr is not what it has to be"),
        ({"hyper": {"lr": [0.1, None]}}, "training.hyper.lr is not what it has to be"),
        ({"hyper": {"lr": [0.1]}}, "a number of the optimizer is not there for each group"),
        ({"groups": -1}, "training.groups is not what it has to be"),
        ({"groups": 1, "hyper": {}}, "what is trained makes no sense"),
        ({"parameters": []}, "training.parameters has too few elements"),
        ({"parameters": [{"name": "count"}]}, r"training.parameters\[0\].group is missing"),
        ({"parameters": [{"name": "count", "group": 2}]}, "what is trained makes no sense"),
        ({"aliases": {"other": 3}}, "training.aliases.other is not what it has to be"),
        ({"check_finite": 1}, "training.check_finite is not what it has to be"),
        ({"memory_budget": "0.4"}, "training.memory_budget is not what it has to be"),
        ({}, ""),
    ],
)
def test_both_readers_check_what_is_trained(library: Any, older: Draft, change: dict[str, Any], why: str) -> None:
    manifest = {**older.manifest(), "state": STATE, "training": TRAINING | change}
    data = with_manifest(older.members(), json.dumps(manifest).encode())
    for read in (library.load_memory, lambda data: Archive(data).manifest):
        found = reason(lambda: read(data))  # noqa: B023
        assert re.search(why, found) if why else not found or LATER.search(found)


def test_both_readers_take_the_same_archives(library: Any, older: Draft) -> None:
    """Bytes changed at random, mostly in the headers."""
    chance = random.Random(5)
    package = older.build()
    directory, accepted = package.index(b"PK\1\2"), 0
    for _ in range(600):
        damaged = bytearray(package)
        for _ in range(chance.choice((1, 1, 2, 5))):
            place = chance.randrange(*chance.choice(((directory, len(package)), (0, 40), (0, 9000))))
            damaged[place] = chance.choice((0, 1, 0xFF, damaged[place] ^ 1 << chance.randrange(8)))

        def read(data: bytes = bytes(damaged)) -> None:
            archive = Archive(data)
            archive.check_members()

        native, python = reason(lambda: library.load_memory(bytes(damaged))), reason(read)  # noqa: B023
        assert (native == "") == (python == ""), (native, python)
        accepted += native == ""
    assert accepted < 60


def test_many_members_are_refused_in_no_time(library: Any) -> None:
    """Members and a list of as many others: no look-up walks over all of them.

    Four times as many take four times as long; they would take sixteen times as long, were each looked for among all.
    """
    few, many = (refusal_seconds(library, count) for count in (10_000, 40_000))
    assert many < 10 * few


def refusal_seconds(library: Any, count: int) -> float:
    """Of the process, the least of three: a package whose list names other members, and one whose list lacks one."""
    members = {f"src/{i:05d}{'x' * 90}": b"" for i in range(count)} | {"weights.safetensors": b""}
    others = {f"src/{i:05d}{'y' * 90}": {"size": 0, "sha256": "0"} for i in range(count)}
    row = {"size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
    all_but_one = dict.fromkeys(list(members)[: count - 1], row)
    empty = Draft(b"", exact=False).manifest()
    wrong, short = (
        with_manifest(members, json.dumps(empty | {"members": rows}).encode()) for rows in (others, all_but_one)
    )
    taken = []
    for _ in range(3):
        start = time.process_time()
        assert "missing" in reason(lambda: library.load_memory(wrong))
        assert "not listed" in reason(lambda: library.load_memory(short))
        taken.append(time.process_time() - start)
    return min(taken)


def test_targets_of_the_machine_are_found(library: Any, draft: Draft) -> None:
    assert library.load_memory(draft.build()).target == f"cpu:{ISA}"
