"""A process that forks while another of its threads is in a call that changes a state: the child goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc import RunError
from torch import nn

SLOW = """#include "mycc/custom.h"
extern "C" void slow(const mycc_host *, const mycc_tensor *y, const mycc_tensor *x, const mycc_number *) {
  const float turns = mycc::data<const float>(x[0])[0];
  volatile float at = 0;
  while (at < turns) at = at + 1;
  mycc::data<float>(y[0])[0] = turns;
}"""


class Slow(nn.Module):
    """Counts its calls; the argument says how long one takes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, turns: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return torch.ops.forktest.slow(turns) + self.count


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("fork")
    with torch.library._scoped_library("forktest", "FRAGMENT") as library:
        library.define("slow(Tensor x) -> Tensor")
        library.impl("slow", lambda x: x.clone(), "CPU")
        torch.library.register_fake("forktest::slow", torch.empty_like, lib=library)
        mycc.cpp_kernel("forktest::slow", SLOW)
        mycc.compile(Slow().eval(), (torch.zeros(1),), out=folder / "slow.pkg", cache_dir=folder / "cache")
    return mycc.load(folder / "slow.pkg")


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does the work; -SIGALRM when it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_the_child_of_a_fork_does_not_wait_for_a_call_of_its_parent(model: Any) -> None:
    short, other = np.zeros(1, np.float32), model.new_state()

    def work() -> None:
        with pytest.raises(RunError, match="count: this process was forked while a call changed the state"):
            model(short)
        with pytest.raises(RunError, match="forked"):
            _ = np.asarray(model.state["count"])
        assert model(short, state=other) == 1
        assert model(short, state=model.new_state()) == 1
        model.state["count"] = np.array([7], np.float32)
        assert model(short) == 8
        model.reset_state()
        assert model(short) == 1

    for _ in range(20):  # until the fork falls into the call
        caller = threading.Thread(target=model, args=(np.full(1, 2**24, np.float32),))  # some 30 ms
        caller.start()
        time.sleep(0.01)
        status = in_child(work)
        caller.join()
        assert status in (0, 1)  # 1: there was no call
        if status == 0:
            break
    assert status == 0
    model.reset_state()
    assert model(short) == 1
