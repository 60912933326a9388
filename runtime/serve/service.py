"""One engine in a thread of its own, for any number of clients: texts enter, and their tokens come back as events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import Error, RunError
from ..generation.engine import Text
from ..generation.sampling import Chosen
from ..generation.texts import AnyEngine

__all__ = ["Busy", "Event", "Service"]


class Event(NamedTuple):
    """A step of a text: its next token, None when it ended without one; why it ended, None while it goes on; or what
    went wrong, which ends it too."""

    chosen: Chosen | None
    finish: str | None
    error: Error | None = None


class Busy(Exception):
    """As many texts wait as may."""


class Service:
    """Runs texts side by side.

    Args:
        make: makes an engine; again after a call failed, as the cache may hold anything then.
        waiting: texts that may wait for a row of the cache.
    """

    def __init__(self, make: Callable[[], AnyEngine], waiting: int = 256) -> None:
        self._make, self._most = make, waiting
        self._engine = make()
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._heard: dict[int, tuple[Text, Callable[[Event], Any]]] = {}
        self._entered = 0  # texts that have not ended
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mycc-serve", daemon=True)
        self._thread.start()

    def submit(self, text: Text, hear: Callable[[Event], Any]) -> None:
        """Lets a text in. hear: called with each of its events, by the service's thread.

        Raises:
            InputError: the prompt is too long.
            Busy: too many texts wait.
        """
        self._engine.check(text)
        with self._lock:
            if self._entered >= self._most + self._engine.places:
                raise Busy
            self._entered += 1
        self._orders.put(lambda: self._enter(text, hear))

    def cancel(self, text: Text) -> None:
        """Ends a text that nobody listens to any more."""
        self._orders.put(lambda: self._drop(text))

    def close(self) -> None:
        """Ends the thread; texts that go on end with it."""
        self._orders.put(None)
        self._thread.join()

    # -- by the service's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            while not self._engine.busy or not self._orders.empty():
                order = self._orders.get()
                if order is None:
                    return
                order()
            try:
                for text, chosen in self._engine.step():
                    if text.finish != "error":  # what went wrong is raised behind the last of them
                        self._tell(text, Event(chosen, text.finish))
            except Error as error:
                self._fail(error)
            except Exception as error:  # clients are told, and the server lives
                self._fail(RunError(f"the run failed: {error!r}"))

    def _enter(self, text: Text, hear: Callable[[Event], Any]) -> None:
        self._heard[id(text)] = text, hear
        self._engine.add(text)

    def _drop(self, text: Text) -> None:
        if id(text) in self._heard:
            self._engine.cancel(text)
            self._leave(text)

    def _tell(self, text: Text, event: Event) -> None:
        if id(text) not in self._heard:
            return
        _, hear = self._heard[id(text)]
        if event.finish is not None:
            self._leave(text)
        hear(event)

    def _leave(self, text: Text) -> None:
        del self._heard[id(text)]
        with self._lock:
            self._entered -= 1

    def _fail(self, error: Error) -> None:
        """Ends the texts of a call that failed; all of them where the engine cannot say which those are."""
        texts = [text for text, _ in self._heard.values()]
        ended = [text for text in texts if text.finish == "error"]
        for text in ended or texts:
            self._tell(text, Event(None, "error", error))
        if not ended:
            self._engine = self._make()
