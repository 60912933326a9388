"""Serves a mycc package over HTTP. Needs fastapi, uvicorn, numpy and mycc; torch is neither needed nor imported.

    MYCC_PACKAGE=mlp.pkg uvicorn app:app --app-dir examples/service

POST /predict     inputs by name: a JSON object of nested lists, or the bytes of a .npz file
GET  /signature   names, dtypes and shapes of inputs and outputs
GET  /healthz     whether the service is up, and what it serves
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
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


def create_app(package: str | None = None) -> FastAPI:
    """The service for a package; None: the one that the environment variable MYCC_PACKAGE names, read at start-up."""

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
        return JSONResponse({"error": str(error)}, status_code=422)

    @app.exception_handler(mycc.RunError)
    async def fail(request: Request, error: mycc.RunError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=500)

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
        body = await request.body()
        as_npz = request.headers.get("content-type", "").split(";")[0].strip() in (NPZ, "application/octet-stream")
        # Calls run beside each other in the pool's threads; a call holds no lock of Python's while it computes.
        outputs = await run_in_threadpool(run, app.state.model, body, as_npz)
        if as_npz:
            return Response(write_npz(outputs), media_type=NPZ)
        return JSONResponse({name: as_lists(array) for name, array in outputs.items()})

    return app


def run(model: mycc.runtime.loader.Model, body: bytes, as_npz: bool) -> dict[str, np.ndarray]:
    """Outputs by name for a request's body. Raises mycc.InputError for inputs that do not fit."""
    given = read_npz(body) if as_npz else read_json(body)
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
    except ValueError as error:
        raise mycc.InputError(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise mycc.InputError("the body has to be a JSON object with the inputs by name")
    return given


def read_npz(body: bytes) -> Mapping[str, Any]:
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, OSError, EOFError, AttributeError, zlib.error, zipfile.BadZipFile) as error:
        raise mycc.InputError(f"the body is not a .npz file of plain arrays: {error}") from None


def as_input(value: Any, port: mycc.runtime.signature.Port) -> np.ndarray:
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
