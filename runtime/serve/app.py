"""The HTTP application: /v1/completions, /v1/chat/completions or /v1/embeddings, /v1/models, /health."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import Error, InputError
from ..generation.engine import Text
from ..generation.sampling import Chosen
from ..generation.texts import Writer
from ..installation import how_to_install
from .answers import Answer, error_body, usage
from .requests import Asked, chat_request, completion_request
from .service import Busy, Event, Service
from .vectors import embeddings

__all__ = ["application", "serve"]


def serve(model: Any, name: str, host: str, port: int, waiting: int) -> None:
    """Answers requests until the process is told to end. Raises InputError where uvicorn is not installed."""
    try:
        import uvicorn
    except ImportError:
        raise InputError("serving needs starlette and uvicorn", hint=how_to_install("serve")) from None
    uvicorn.run(application(model, name, waiting), host=host, port=port, log_level="info")


def application(model: Any, name: str, waiting: int = 256) -> Any:
    """The ASGI application of a package for text or for vectors of texts.

    Args:
        model: what mycc.load gave.
        name: the model's name for clients.
        waiting: texts that may wait for their turn; further ones are answered with status 429.

    Raises:
        InputError: the package is for something else or has no tokenizer, or starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise InputError("serving needs starlette and uvicorn", hint=how_to_install("serve")) from None
    task = (model.manifest.get("task") or {}).get("name")
    routes, close = _vector_routes(model, name) if task == "embedding" else _text_routes(model, name, waiting)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        close()

    row = {"id": name, "object": "model", "created": 0, "owned_by": "mycc"}

    async def models(_: Any) -> Any:
        return JSONResponse({"object": "list", "data": [row]})

    async def one_model(request: Any) -> Any:
        asked = request.path_params["name"]
        if asked != name:
            return JSONResponse(error_body(f"there is no model '{asked}'", code="model_not_found"), 404)
        return JSONResponse(row)

    async def refused(request: Any, error: Any) -> Any:
        return JSONResponse(
            error_body(f"{request.method} {request.url.path}: {error.detail}"), error.status_code, error.headers
        )

    async def failed(_: Any, error: Exception) -> Any:
        return JSONResponse(error_body(f"the request failed: {error!r}", "server_error"), 500)

    async def health(_: Any) -> Any:
        return JSONResponse({"status": "ok"})

    common = [
        Route("/v1/models", models), Route("/v1/models/{name:path}", one_model), Route("/health", health)
    ]  # fmt: skip
    posts = [Route(path, answer, methods=["POST"]) for path, answer in routes.items()]
    return Starlette(
        routes=[*common, *posts], lifespan=lifespan, exception_handlers={404: refused, 405: refused, Exception: failed}
    )  # fmt: skip


Routes = dict[str, Callable[[Any], Any]]


def _text_routes(model: Any, name: str, waiting: int) -> tuple[Routes, Callable[[], None]]:
    """What a package for text answers, and what ends its service."""
    server = _Server(model, name, waiting)

    async def completions(request: Any) -> Any:
        return await server.answer(request, chat=False)

    async def chat(request: Any) -> Any:
        return await server.answer(request, chat=True)

    return {"/v1/completions": completions, "/v1/chat/completions": chat}, server.service.close


def _vector_routes(model: Any, name: str) -> tuple[Routes, Callable[[], None]]:
    """What a package for vectors answers."""
    from starlette.responses import JSONResponse

    async def vectors(request: Any) -> Any:
        try:
            return JSONResponse(await embeddings(model, name, await _body(request, name)))
        except _Refused as refused:
            return JSONResponse(refused.body, refused.status)
        except InputError as error:
            return JSONResponse(error_body(str(error)), 400)
        except Error as error:
            return JSONResponse(error_body(str(error), "server_error"), 500)

    return {"/v1/embeddings": vectors}, lambda: None


class _Refused(Exception):
    """A request that is answered before it is read as one of a kind."""

    def __init__(self, body: dict[str, Any], status: int) -> None:
        super().__init__()
        self.body, self.status = body, status


async def _body(request: Any, name: str) -> dict[str, Any]:
    """The request's JSON, of a request to the model of this name."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise _Refused(error_body(f"the body is not JSON: {error}"), 400) from None
    if not isinstance(body, dict):
        raise _Refused(error_body("the body has to be a JSON object"), 400)
    if body.get("model") not in (None, name):
        raise _Refused(error_body(f"there is no model '{body['model']}'", code="model_not_found"), 404)
    return body


class _Server:
    def __init__(self, model: Any, name: str, waiting: int) -> None:
        self.name, self.generator = name, model.generator
        if (model.manifest.get("task") or {}).get("name") == "automatic-speech-recognition":
            raise InputError("the server answers texts, and the package writes down speech", hint="Use transcribe.")
        self.tokenizer = self.generator.tokenizer
        self.service = Service(lambda: self.generator.new_engine(reuse=True), waiting)

    async def answer(self, request: Any, chat: bool) -> Any:
        """The response to a request: errors of the client's are 400, too many texts 429."""
        from starlette.responses import JSONResponse, StreamingResponse

        try:
            body = await _body(request, self.name)
            asked = chat_request(body) if chat else completion_request(body)
            runs = self._submit(asked)
        except _Refused as refused:
            return JSONResponse(refused.body, refused.status)
        except InputError as error:
            return JSONResponse(error_body(str(error)), 400)
        except Busy:
            return JSONResponse(error_body("too many requests wait", "rate_limit_error"), 429, {"Retry-After": "1"})
        answer = Answer(self.name, chat, self.tokenizer.text_of)
        if asked.stream:
            return StreamingResponse(self._streamed(answer, asked, runs), media_type="text/event-stream")
        try:
            return JSONResponse(await self._whole(answer, asked, runs, request))
        except Error as error:
            return JSONResponse(error_body(str(error), "server_error"), 500)

    def _submit(self, asked: Asked) -> list[_Run]:
        """Lets all texts of a request in, or none."""
        if asked.messages is not None:
            prompts: list[Sequence[int]] = [self.generator.chat_tokens(asked.messages, asked.template)]
        else:
            prompts = [self.generator.encoded(prompt) for prompt in asked.prompts]
        options = self.generator.options(asked.options)
        runs: list[_Run] = []
        try:
            for prompt in prompts:
                for i in range(asked.count):
                    own = options if options.seed is None else replace(options, seed=options.seed + i)
                    runs.append(_Run(self, self.generator.text(prompt, own)))
        except (Busy, InputError):
            for run in runs:
                run.cancel()
            raise
        return runs

    async def _whole(self, answer: Answer, asked: Asked, runs: Sequence[_Run], request: Any) -> dict[str, Any]:
        watch = asyncio.create_task(_gone(request, runs))
        try:
            choices = []
            for index, run in enumerate(runs):
                pieces = [piece async for piece, _, _ in run.pieces()]
                known = run.chosen if asked.logprobs is not None else None
                choices.append(answer.choice(index, "".join(pieces), run.finish, known))
            return answer.whole(choices, _usage(runs, asked.count))
        finally:
            watch.cancel()
            for run in runs:
                run.cancel()

    async def _streamed(self, answer: Answer, asked: Asked, runs: Sequence[_Run]) -> AsyncIterator[str]:
        """Pieces of all texts of a request as server-sent events, in the order in which they come."""
        merged: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

        async def follow(index: int, run: _Run) -> None:
            try:
                async for step in run.pieces():
                    await merged.put((index, step))
            except Error as error:
                await merged.put((index, error))
            await merged.put((index, None))

        tasks = [asyncio.create_task(follow(i, run)) for i, run in enumerate(runs)]
        begun: set[int] = set()
        left = len(runs)
        try:
            while left:
                index, step = await merged.get()
                if step is None:
                    left -= 1
                elif isinstance(step, Error):
                    yield _event(error_body(str(step), "server_error"))
                else:
                    text, finish, chosen = step
                    known = chosen if asked.logprobs is not None else None
                    yield _event(answer.piece(index, text, finish, known, index not in begun))
                    begun.add(index)
            if asked.usage:
                yield _event(answer.last(_usage(runs, asked.count)))
            yield "data: [DONE]\n\n"
        finally:  # the client may have gone
            for task in tasks:
                task.cancel()
            for run in runs:
                run.cancel()


class _Run:
    """One text in the service, as its request hears of it."""

    def __init__(self, server: _Server, text: Text) -> None:
        self.text, self._service = text, server.service
        self._writer = Writer(server.tokenizer, text)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.chosen: list[Chosen] = []
        self.finish: str | None = None
        loop = asyncio.get_running_loop()

        def hear(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._service.submit(text, hear)

    async def pieces(self) -> AsyncIterator[tuple[str, str | None, list[Chosen]]]:
        """Pieces of text, with the tokens since the last piece; the last has the reason to finish."""
        since: list[Chosen] = []
        while self.finish is None:
            event = await self._events.get()
            if event.error is not None:
                self.finish = "error"
                raise event.error
            if event.chosen is not None:
                self.chosen.append(event.chosen)
                since.append(event.chosen)
            piece = self._writer.add(event.chosen, event.finish)
            self.finish = event.finish
            if self._writer.stopped:
                self._service.cancel(self.text)
                self.finish = "stop"
            if piece or self.finish is not None:
                yield piece, self.finish, since
                since = []

    def cancel(self) -> None:
        if self.finish is None:
            self.finish = "cancelled"
            self._service.cancel(self.text)
            self._events.put_nowait(Event(None, "cancelled"))


async def _gone(request: Any, runs: Sequence[_Run]) -> None:
    """Ends the texts of a client that does not wait any more."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.25)
    for run in runs:
        run.cancel()


def _usage(runs: Sequence[_Run], count: int) -> dict[str, int]:
    return usage(sum(len(run.text.given) for run in runs[::count]), sum(len(run.chosen) for run in runs))


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
