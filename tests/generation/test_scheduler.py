"""The native scheduler: whatever comes when, is cancelled or waits for blocks, each text gets what it gets alone."""

from __future__ import annotations

import ctypes
import functools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mycc
import pytest
from mycc.runtime.generation.scheduler import Counts, Scheduler
from mycc.runtime.serve.service import Service

from .folders import greedy, make_network
from .test_architectures import KINDS

MOST = 40


class Asked(NamedTuple):
    """A text of the random schedules: its prompt, and its options."""

    prompt: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]


def some_texts() -> list[Asked]:
    """Prompts of many lengths, some of which begin alike, greedy and drawn."""
    choose = random.Random(0)
    begin = [choose.randrange(4, 400) for _ in range(40)]
    lengths = (1, 3, 15, 16, 17, 33, 50)
    prompts = [[choose.randrange(4, 400) for _ in range(length)] for length in lengths]
    prompts += [begin[:length] + [choose.randrange(4, 400) for _ in range(3)] for length in (5, 16, 20, 32, 37)]
    drawn = (("temperature", 0.9), ("top_k", 20), ("seed", 7))
    return [Asked(tuple(prompt), drawn if i % 3 == 2 else ()) for i, prompt in enumerate(prompts)]


@pytest.fixture(scope="module")
def loaded(made: Any) -> Any:
    return mycc.load(made.package)


@pytest.fixture(scope="module")
def alone(loaded: Any) -> dict[Asked, list[int]]:
    """What each of the texts gets when nothing else is there."""
    return {
        asked: list(loaded.generate_tokens(asked.prompt, max_new_tokens=MOST, ignore_eos=True, **dict(asked.options)))
        for asked in some_texts()
    }


def text_of(model: Any, asked: Asked, count: int) -> Any:
    options = {"max_new_tokens": count, "ignore_eos": True, **dict(asked.options)}
    return model.generator.text(asked.prompt, model.generator.options(options))


def finish(scheduler: Scheduler) -> Counts:
    """Runs all texts to their ends."""
    for _ in range(2000):
        if not scheduler.busy:
            return scheduler.counts()
        list(scheduler.step())
    raise AssertionError("a text does not end")


def run_schedule(model: Any, scheduler: Scheduler, alone: dict[Asked, list[int]], seed: int) -> None:
    """Texts come at random steps, and some are cancelled; those that are not have to be as they are alone."""
    choose = random.Random(seed)
    known = list(alone)
    coming = sorted(
        (choose.randrange(0, 40), i, choose.choice(known), choose.randrange(1, MOST + 1))
        for i in range(choose.randrange(2, 9))
    )
    texts: list[tuple[Any, list[int]]] = []
    step = 0
    while coming or scheduler.busy:
        while coming and coming[0][0] <= step:
            _, _, asked, count = coming.pop(0)
            text = text_of(model, asked, count)
            scheduler.add(text)
            texts.append((text, alone[asked][:count]))
        if texts and choose.random() < 0.02:
            scheduler.cancel(choose.choice(texts)[0])
        list(scheduler.step())
        step += 1
        assert step < 2000, f"schedule {seed} does not end"
    for text, wanted in texts:
        assert text.finish in ("length", "cancelled")
        got = text.tokens
        assert got == (wanted if text.finish == "length" else wanted[: len(got)]), f"schedule {seed}"
    counts = scheduler.counts()
    assert (counts.running, counts.waiting) == (0, 0)
    assert counts.free_blocks == counts.blocks, f"schedule {seed} leaves blocks held"


@pytest.fixture(params=[False, True], ids=["alone", "reuse"])
def scheduler(loaded: Any, request: Any) -> Scheduler:
    made = loaded.generator.new_engine(request.param)
    assert isinstance(made, Scheduler)
    return made


def test_random_schedules(loaded: Any, scheduler: Scheduler, alone: dict[Asked, list[int]]) -> None:
    for seed in range(150):
        run_schedule(loaded, scheduler, alone, seed)
    counts = scheduler.counts()
    assert counts.preempted > 0
    if scheduler.reuse:
        assert counts.reused_tokens > 0
        assert counts.copied_blocks > 0


@pytest.mark.slow
def test_a_thousand_random_schedules(loaded: Any, scheduler: Scheduler, alone: dict[Asked, list[int]]) -> None:
    for seed in range(1000, 2000):
        run_schedule(loaded, scheduler, alone, seed)


def test_preempted_as_undisturbed(loaded: Any, alone: dict[Asked, list[int]]) -> None:
    """Three texts that grow need 12 blocks, of which there are 10."""
    scheduler = loaded.generator.new_engine(False)
    asked = [asked for asked in alone if len(asked.prompt) in (15, 16, 17)]
    texts = [text_of(loaded, each, MOST) for each in asked]
    for text in texts:
        scheduler.add(text)
    assert scheduler.counts().blocks == 10
    assert finish(scheduler).preempted > 0
    assert [text.tokens for text in texts] == [alone[each] for each in asked]


def test_texts_that_begin_alike_share_blocks(loaded: Any, alone: dict[Asked, list[int]]) -> None:
    scheduler = loaded.generator.new_engine(True)
    first, second = [asked for asked in alone if len(asked.prompt) in (35, 40)]
    for asked, reused, copied in ((first, 0, 0), (second, 32, 0), (first, 64, 0), (second, 103, 1)):
        text = text_of(loaded, asked, 8)
        scheduler.add(text)
        counts = finish(scheduler)
        assert text.tokens == alone[asked][:8]
        assert (counts.reused_tokens, counts.copied_blocks) == (reused, copied)


def test_the_first_to_come_is_not_overtaken(loaded: Any, alone: dict[Asked, list[int]]) -> None:
    """A long prompt waits for blocks; short ones that come later do not take them away for ever."""
    scheduler = loaded.generator.new_engine(False)
    short = [asked for asked in alone if len(asked.prompt) < 4]
    long = max(alone, key=lambda asked: len(asked.prompt))
    for _ in range(3):
        scheduler.add(text_of(loaded, short[0], MOST))
    waiting = text_of(loaded, long, 5)
    scheduler.add(waiting)
    for _ in range(200):
        if waiting.finish is not None:
            break
        scheduler.add(text_of(loaded, short[1], 2))
        list(scheduler.step())
    assert waiting.tokens == alone[long][:5]
    scheduler.cancel_all()
    assert not scheduler.busy


def test_recurrences_of_several_texts(tmp_path: Path) -> None:
    """A hybrid's texts have a row of the states and of the cache each, which calls name."""
    network = make_network("lfm2", **KINDS["lfm2"])
    package = mycc.compile_generation(
        network, out=tmp_path / "text.pkg", max_length=96, max_batch=3, chunk=16, verify=False
    )
    model = mycc.load(package)
    scheduler = model.generator.new_engine(True)
    assert isinstance(scheduler, Scheduler)
    assert scheduler.counts().blocks == 3
    options = {"max_new_tokens": MOST, "ignore_eos": True}
    alone = {
        asked: list(model.generate_tokens(asked.prompt, **options, **dict(asked.options))) for asked in some_texts()[:4]
    }
    first = next(iter(alone))
    assert alone[first] == greedy(network, list(first.prompt), MOST)
    for seed in range(4):
        run_schedule(model, scheduler, alone, seed)
    assert scheduler.counts().preempted == 0


def test_tokens_that_python_chooses(loaded: Any, alone: dict[Asked, list[int]]) -> None:
    """A seed of more than 64 bits is for numpy alone; the text goes on beside others."""
    asked = some_texts()[4]
    options = {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0.7, "logprobs": 1, "seed": 2**70}
    chosen = [loaded.generator.text(asked.prompt, loaded.generator.options(options)) for _ in range(2)]
    scheduler = loaded.generator.new_engine(False)
    other = next(iter(alone))
    beside = text_of(loaded, other, 20)
    for text in (chosen[0], beside, chosen[1]):
        scheduler.add(text)
    finish(scheduler)
    assert chosen[0].tokens == chosen[1].tokens
    assert len(chosen[0].tokens) == 12
    assert all(len(each.top) == 1 for each in chosen[0].chosen)
    assert beside.tokens == alone[other][:20]


def test_a_call_that_fails(made: Any, alone: dict[Asked, list[int]]) -> None:
    """Its texts end, the others are served again from their beginning, and each failure is told once."""
    model = mycc.load(made.package)
    scheduler = model.generator.new_engine(True)
    known = [asked for asked in alone if len(asked.prompt) < 20][:3]
    texts = [text_of(model, asked, MOST) for asked in known]
    for text in texts:
        scheduler.add(text)
    for _ in range(8):
        list(scheduler.step())
    scheduler._c.mycc_unload(ctypes.c_void_p(model._native.handle))  # calls that begin now fail
    failures = 0
    while scheduler.busy:
        with pytest.raises(mycc.RunError, match="unloaded"):
            list(scheduler.step())
        failures += 1
        assert failures < 10
    assert [text.finish for text in texts] == ["error"] * 3
    assert all(text.tokens == alone[asked][: len(text.tokens)] for text, asked in zip(texts, known, strict=True))
    counts = scheduler.counts()
    assert (counts.running, counts.waiting, counts.free_blocks) == (0, 0, counts.blocks)


class Failing:
    """An engine whose second step fails for one of its texts."""

    places, busy, made = 3, False, 0

    def __init__(self) -> None:
        self.texts: list[Any] = []
        self.steps = 0
        Failing.made += 1

    def check(self, text: Any) -> None:
        pass

    def add(self, text: Any) -> None:
        self.texts.append(text)
        self.busy = len(self.texts) == 2

    def step(self) -> Iterator[tuple[Any, None]]:
        self.steps += 1
        if self.steps == 2:
            self.texts[0].finish = "error"
            yield self.texts[0], None
            raise mycc.RunError("no memory")
        if self.steps == 4:
            self.texts[1].finish, self.busy = "length", False
            yield self.texts[1], None


def test_the_server_goes_on_with_the_other_texts(model: Any) -> None:
    heard: list[tuple[int, str | None, Any]] = []
    texts = [text_of(model, asked, 2) for asked in some_texts()[:2]]
    service = Service(Failing)  # type: ignore[arg-type]
    done = threading.Event()

    def hear(i: int, event: Any) -> None:
        heard.append((i, event.finish, event.error and str(event.error)))
        if len(heard) == 2:
            done.set()

    for i, text in enumerate(texts):
        service.submit(text, functools.partial(hear, i))
    assert done.wait(20)
    service.close()
    assert heard == [(0, "error", "no memory"), (1, "length", None)]
    assert Failing.made == 1
