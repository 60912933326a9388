"""Signals during a call: their handlers run, and what they raise ends the call."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.loader import Model
from torch import nn

from ..helpers.interfaces import INTERFACES, load_by

SLOW = """#include "mycc/custom.h"
extern "C" void pieces(const mycc_host *host, const mycc_tensor *y, const mycc_tensor *x, const mycc_number *) {
  mycc::parallel_for(host, (int64_t)mycc::data<const float>(x[0])[0], 1, [=](int64_t, int64_t) {
    volatile float at = 0;
    while (at < 1e5f) at = at + 1;
  });
  mycc::data<float>(y[0])[0] = 1;
}"""
MINUTES, SHORT = np.full(1, 1e6, np.float32), np.full(1, 3, np.float32)


class Pieces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, count: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.ops.interrupttest.pieces(count) + self.calls


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupt")
    with torch.library._scoped_library("interrupttest", "FRAGMENT") as library:
        library.define("pieces(Tensor x) -> Tensor")
        library.impl("pieces", lambda x: torch.ones_like(x), "CPU")
        torch.library.register_fake("interrupttest::pieces", torch.empty_like, lib=library)
        mycc.cpp_kernel("interrupttest::pieces", SLOW)
        mycc.compile(Pieces().eval(), (torch.zeros(1),), out=folder / "pieces.pkg", cache_dir=folder / "cache")
    return folder / "pieces.pkg"


@pytest.fixture(params=INTERFACES)
def model(request: pytest.FixtureRequest, package: Path) -> Model:
    return load_by(request.param, package)


class Rung(Exception):
    pass


def test_what_a_handler_raises_ends_the_call(model: Any) -> None:
    def ring(*_: Any) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            begin = time.monotonic()
            with pytest.raises(Rung):
                model(MINUTES)
            assert time.monotonic() - begin < 20
        model.reset_state()
        assert model(SHORT) == 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_returns_does_not(model: Any) -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    try:
        model.reset_state()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert model(np.full(1, 3000, np.float32)) == 2
        assert len(rung) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_are_not_asked(model: Any) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(model(SHORT)))
    thread.start()
    thread.join()
    assert len(results) == 1
