"""Serves a mycc package over HTTP. Needs fastapi, uvicorn, numpy and mycc; torch is neither needed nor imported.

    MYCC_PACKAGE=mlp.pkg python examples/service/app.py --port 8000

POST /predict     inputs by name: a JSON object of nested lists, or the bytes of a .npz file
GET  /signature   names, dtypes and shapes of inputs and outputs
GET  /healthz     whether the service is up, and what it serves

Limits, as environment variables:

MYCC_MAX_BODY     bytes of a request's body, and of what a .npz file unpacks to (64 MiB)
MYCC_BODY_SECONDS seconds in which a client has to send its body (30)
MYCC_GRACE        seconds that open requests have after SIGTERM (10)
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import math
import os
import re
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mycc
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

NPZ = "application/x-npz"
DTYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
MAX_BODY = 64 << 20
MAX_ARRAYS = 1024
LOG = logging.getLogger("mycc.service")


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


class TooLarge(Exception):
    """A body, or what it unpacks to, has more bytes than the service takes."""


def create_app(package: str | None = None, max_body: int | None = None) -> FastAPI:
    """The service for a package; None: the one that the environment variable MYCC_PACKAGE names, read at start-up."""
    limit = setting("MYCC_MAX_BODY", MAX_BODY) if max_body is None else max_body
    seconds = setting("MYCC_BODY_SECONDS", 30)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        path = package or os.environ.get("MYCC_PACKAGE")
        if not path:
            raise RuntimeError("set MYCC_PACKAGE to the package to serve")
        app.state.model = mycc.load(path)  # milliseconds; one model serves all requests and threads
        yield

    app = FastAPI(title="mycc", lifespan=lifespan)

    @app.exception_handler(mycc.InputError)
    async def refuse(request: Request, error: mycc.InputError) -> JSONResponse:
        return answer(422, str(error))

    @app.exception_handler(mycc.RunError)
    async def fail(request: Request, error: mycc.RunError) -> JSONResponse:
        LOG.error("%s", error)  # with the line of the model, which is not the client's to know
        if "index out of range" in error.message:  # a number in the inputs that the model does not know
            return answer(422, without_places(error.message))
        return answer(500, without_places(error.message))

    @app.exception_handler(TooLarge)
    async def limited(request: Request, error: TooLarge) -> JSONResponse:
        return answer(413, f"the inputs have more than {limit} bytes")

    @app.exception_handler(TimeoutError)
    async def late(request: Request, error: TimeoutError) -> JSONResponse:
        return answer(408, f"the body was not there after {seconds} seconds")

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        model = app.state.model
        return {"status": "ok", "model": model.manifest["name"], "target": model.target, "threads": model.threads}

    @app.get("/signature")
    async def signature() -> dict[str, Any]:
        described = app.state.model.signature
        return {
            "inputs": [port._asdict() for port in described.inputs],
            "outputs": [port._asdict() for port in described.outputs],
            "symbols": [symbol._asdict() for symbol in described.symbols],
        }

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        async with asyncio.timeout(seconds):
            body = await read_body(request, limit)
        as_npz = request.headers.get("content-type", "").split(";")[0].strip() in (NPZ, "application/octet-stream")
        # Calls run beside each other in the pool's threads; a call holds no lock of Python's while it computes.
        outputs = await run_in_threadpool(run, app.state.model, body, as_npz, limit)
        if as_npz:
            return Response(write_npz(outputs), media_type=NPZ)
        return JSONResponse({name: as_lists(array) for name, array in outputs.items()})

    return app


def answer(status: int, text: str) -> JSONResponse:
    """An error. Words of the request come back in it, and they may be no text that UTF-8 can hold."""
    return JSONResponse({"error": text.encode("utf-8", "backslashreplace").decode()}, status_code=status)


def without_places(text: str) -> str:
    """The text without the lines of the model's source: "(model.py:12)"."""
    return re.sub(r"\s*\(?[^\s()]+:\d+\)?", "", text)


async def read_body(request: Request, limit: int) -> bytes:
    """The body, piece by piece, until it is too large."""
    promised = request.headers.get("content-length", "")
    if promised.isdecimal() and int(promised) > limit:
        raise TooLarge
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise TooLarge
    return bytes(body)


def run(model: mycc.Model, body: bytes, as_npz: bool, limit: int = MAX_BODY) -> dict[str, np.ndarray]:
    """Outputs by name for a request's body. Raises mycc.InputError for inputs that do not fit."""
    given = read_npz(body, limit) if as_npz else read_json(body)
    ports = model.signature.inputs
    names = [port.name for port in ports]
    unknown, missing = sorted(given.keys() - set(names)), [name for name in names if name not in given]
    if unknown or missing:
        found = [f"input '{name}' is missing" for name in missing] + [f"there is no input '{name}'" for name in unknown]
        raise mycc.InputError("; ".join(found), hint=f"The inputs are: {', '.join(names)}.")
    results = model.run_flat([as_input(given[port.name], port) for port in ports])
    return {port.name: np.asarray(result) for port, result in zip(model.signature.outputs, results, strict=True)}


def read_json(body: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(body)
    except RecursionError:
        raise mycc.InputError("the body is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise mycc.InputError(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise mycc.InputError("the body has to be a JSON object with the inputs by name")
    return given


def read_npz(body: bytes, limit: int) -> Mapping[str, np.ndarray]:
    """The arrays of a .npz file. Each member has the bytes that its own header promises, and no more than `limit`."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            arrays = {}
            if len(archive.infolist()) > MAX_ARRAYS:
                raise ValueError("it has too many members")
            for info in archive.infolist():
                array = read_npy(archive, info, limit)
                limit -= array.nbytes
                arrays[info.filename.removesuffix(".npy")] = array
            return arrays
    except (TooLarge, MemoryError):
        raise TooLarge from None
    except Exception as error:  # readers of zip files and headers fail in many ways, all of them the request's fault
        raise mycc.InputError(f"the body is not a .npz file of plain arrays: {error}") from None


def read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> np.ndarray:
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)  # type: ignore[no-untyped-call, unused-ignore]
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
            version
        ]
        shape, by_columns, dtype = read_header(member)  # type: ignore[no-untyped-call, unused-ignore]
        if dtype.hasobject:
            raise ValueError("it holds objects")
        size = math.prod(shape) * dtype.itemsize
        if size > limit:
            raise TooLarge
        data = bytearray(member.read(size + 1))  # which calls may write to
    if len(data) != size:
        raise ValueError(f"'{info.filename}' has {len(data)} bytes of data, and its header asks for {size}")
    array = np.frombuffer(data, dtype)
    return array.reshape(shape, order="F" if by_columns else "C")


def as_input(value: Any, port: mycc.Port) -> np.ndarray:
    """An array of the port's dtype; lists are converted where that loses nothing but a float's precision."""
    if port.dtype not in DTYPES:
        raise mycc.InputError(f"input '{port.name}' is {port.dtype}, which this service cannot read")
    if isinstance(value, np.ndarray):
        return value  # the package itself checks dtype and shape
    dtype = np.dtype(DTYPES[port.dtype])
    try:
        array = np.asarray(value)
        kinds = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}[dtype.kind]
        if array.size and array.dtype.kind not in kinds:
            raise ValueError(f"{array.dtype} values")
        return np.asarray(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise mycc.InputError(f"input '{port.name}' has to be nested lists for {port.type}: {error}") from None


def as_lists(array: np.ndarray) -> Any:
    """Nested lists for JSON. It has no NaN and no infinity: they become null; an answer as .npz keeps them."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = array.astype(object)
        values[~np.isfinite(array)] = None
        return values.tolist()
    return array.tolist()


def write_npz(outputs: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)  # type: ignore[arg-type]
    return buffer.getvalue()


app = create_app()


def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser(description="Serves the package that MYCC_PACKAGE names.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    # Without a limit a client that sends its body slowly would hold up the end of the process.
    uvicorn.run(app, host=options.host, port=options.port, timeout_graceful_shutdown=setting("MYCC_GRACE", 10))


if __name__ == "__main__":
    main()
