from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mycc.compiler.build.cache import Cache, clear, default_folder, encode_key, info
from mycc.compiler.build.workspace import workspace
from mycc.runtime.errors import CompileError

from ..helpers.threads import in_threads


def entry_files(cache: Cache) -> list[Path]:
    return sorted(path for path in (cache.folder / "entries").rglob("*") if path.is_file())


def age(cache: Cache, key: bytes, seconds: float) -> None:
    """Makes an entry look as if it had last been used that long ago."""
    path = cache._path(key)
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))


def test_a_value_is_found_by_its_key_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(b"key") is None
    cache.put(b"key", b"value")
    assert cache.get(b"key") == b"value"
    assert cache.get(b"ke") is None
    assert Cache(tmp_path).get(b"key") == b"value"
    cache.put(b"key", b"")
    assert cache.get(b"key") == b""


def test_parts_of_a_key_cannot_run_into_each_other() -> None:
    assert encode_key([("a", "bc"), ("d", "")]) != encode_key([("a", "b"), ("cd", "")])
    assert encode_key([("a", "b")]) != encode_key([("ab", "")])
    assert encode_key([("a", "ü")]) == encode_key([("a", "ü".encode())])


def test_two_keys_of_one_digest_are_told_apart(tmp_path: Path) -> None:
    cache = Cache(tmp_path, digest=lambda key: bytes(32))
    cache.put(b"one", b"1")
    assert cache.get(b"two") is None
    cache.put(b"two", b"2")
    assert cache.get(b"two") == b"2"
    assert cache.get(b"one") is None
    assert cache.info().entries == 1


def test_a_cut_entry_is_a_miss_and_is_replaced(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(b"key", b"value")
    (file,) = entry_files(cache)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert cache.get(b"key") is None, size
    cache.put(b"key", b"value")
    assert cache.get(b"key") == b"value"


def test_a_changed_byte_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(b"key", b"value")
    (file,) = entry_files(cache)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.get(b"key") is None, place


def write_many(folder: Path, writer: int) -> None:
    cache = Cache(folder)
    for turn in range(60):
        key = b"shared %d" % (turn % 7)
        cache.put(key, key * 1000)
        found = cache.get(key)
        assert found == key * 1000
    cache.put(b"own %d" % writer, b"%d" % writer)


def test_parallel_writers_in_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(tmp_path, i), daemon=True) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    cache = Cache(tmp_path)
    assert cache.info().entries == 7 + 3
    assert [cache.get(b"own %d" % i) for i in range(3)] == [b"0", b"1", b"2"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_parallel_writers_in_threads(tmp_path: Path) -> None:
    in_threads(lambda writer: write_many(tmp_path, writer), 8)
    assert Cache(tmp_path).info().entries == 7 + 8


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=3500)
    for i, name in enumerate([b"a", b"b", b"c", b"d"]):
        Cache(tmp_path).put(name, bytes(900))
        age(cache, name, 1000 - i)
    assert cache.get(b"a") is not None  # used now
    assert cache.trim() == 1
    assert [name for name in (b"a", b"b", b"c", b"d") if cache.get(name) is not None] == [b"a", b"c", b"d"]
    assert cache.trim() == 0


def test_storing_keeps_to_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=20_000)
    for i in range(100):
        cache.put(b"%d" % i, bytes(1000))
        assert cache.info().bytes <= 20_000 + 2 * 1100
    cache.trim()
    assert 0 < cache.info().bytes <= 20_000


def test_info_and_clear(tmp_path: Path) -> None:
    assert info(tmp_path / "none").entries == 0
    cache = Cache(tmp_path)
    cache.put(b"one", bytes(10))
    cache.put(b"two", bytes(10))
    (tmp_path / "failed" / "abc").mkdir(parents=True)
    (tmp_path / "mine.txt").write_text("not the cache's")
    found = info(tmp_path)
    assert (found.path, found.entries) == (tmp_path, 2)
    assert found.bytes == sum(file.stat().st_size for file in entry_files(cache))
    assert clear(tmp_path) == 2
    assert info(tmp_path).entries == 0
    assert not (tmp_path / "failed").exists()
    assert (tmp_path / "mine.txt").exists()


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MYCC_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_folder() == tmp_path / ".cache" / "mycc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert default_folder() == tmp_path / ".cache" / "mycc"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert default_folder() == Path("/var/xdg/mycc")
    monkeypatch.setenv("MYCC_CACHE_DIR", "~/mine")
    assert default_folder() == tmp_path / "mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    cache = Cache(file / "cache")
    assert cache.get(b"key") is None
    with pytest.raises(CompileError, match=r"cannot write to the cache folder .*file/cache: Not a directory") as error:
        cache.put(b"key", b"value")
    assert "--cache-dir DIR or MYCC_CACHE_DIR" in str(error.value)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(b"key", b"old")
    # A limit on the size of files stands for the full disk: writes fail after the first bytes.
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from mycc.compiler.build.cache import Cache\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "Cache(Path(sys.argv[1])).put(b'key', bytes(100_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert f"CompileError: cannot write to the cache folder {tmp_path}: File too large" in done.stderr
    assert cache.get(b"key") == b"old"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_cache_needs_no_torch() -> None:
    script = "import sys, mycc.compiler.build, mycc.compiler.build.cache; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_folders_are_the_users_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "above" / "cache")
    cache.put(b"key", b"value")
    with workspace(cache.folder):
        pass
    folders = [path for path in (tmp_path / "above").rglob("*") if path.is_dir()]
    assert {path.name for path in folders} >= {"cache", "entries", "tmp"}
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in entry_files(cache)} == {0o600}


@pytest.mark.parametrize("inner", ["", "entries", "entries/shard", "entries/shard/entry", "tmp"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_to_is_refused(tmp_path: Path, inner: str, mode: int) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put(b"key", b"value")
    with workspace(cache.folder):
        pass
    entry = cache._path(b"key")
    path = cache.folder / inner.replace("shard", entry.parent.name).replace("entry", entry.name, inner.count("/entry"))
    path = entry if inner.endswith("/entry") else path
    path.chmod(path.stat().st_mode | mode)
    uses = [lambda: cache.get(b"key"), lambda: cache.put(b"key", b"new")]
    for use in uses[: 1 if path == entry else None] if inner != "tmp" else uses[1:]:
        with pytest.raises(CompileError, match=r"other users may write to .* \(mode 0\d+\)") as error:
            use()
        assert str(path) in str(error.value)
        assert "--cache-dir DIR or MYCC_CACHE_DIR" in str(error.value)
    if inner in ("", "tmp"):
        with pytest.raises(CompileError, match="other users may write to"), workspace(cache.folder):
            pass


def test_what_belongs_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put(b"key", b"value")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for use in (lambda: cache.get(b"key"), lambda: cache.put(b"key", b"new")):
        with pytest.raises(CompileError, match=r"the cache folder .* belongs to another user"):
            use()


def test_an_entry_is_no_link_and_no_fifo(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put(b"key", b"value")
    entry = cache._path(b"key")
    moved = tmp_path / "moved"
    entry.rename(moved)
    entry.symlink_to(moved)
    assert cache.get(b"key") is None
    entry.unlink()
    os.mkfifo(entry)
    assert cache.get(b"key") is None
    cache.put(b"key", b"value")
    assert cache.get(b"key") == b"value"
