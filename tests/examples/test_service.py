"""examples/service over a package of examples/mlp.py."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mycc
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from ..helpers.scripts import load_script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NPZ = {"content-type": "application/x-npz"}


def module(path: Path) -> ModuleType:
    return load_script(path)


@pytest.fixture(scope="module")
def mlp() -> ModuleType:
    return module(EXAMPLES / "mlp.py")


@pytest.fixture(scope="module")
def package(mlp: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("service") / "mlp.pkg"
    return mycc.compile(mlp.model, mlp.example_inputs, dynamic_shapes=mlp.dynamic_shapes, out=out)


@pytest.fixture(scope="module")
def client(package: Path) -> Iterator[TestClient]:
    app = module(EXAMPLES / "service" / "app.py").create_app(str(package))
    with TestClient(app) as client:
        yield client


def expected(mlp: ModuleType, features: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return mlp.model(torch.from_numpy(features)).numpy()


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def refusal(client: TestClient, **request: object) -> str:
    answer = client.post("/predict", **request)  # type: ignore[arg-type]
    assert answer.status_code == 422, answer.text
    return answer.json()["error"]


def test_health_and_signature(client: TestClient) -> None:
    health = client.get("/healthz").json()
    assert health["status"] == "ok"
    assert health["model"] == "mlp"
    assert health["target"].startswith("cpu:")
    signature = client.get("/signature").json()
    assert signature["inputs"] == [{"name": "features", "dtype": "f32", "shape": ["batch", 512]}]
    assert [port["shape"] for port in signature["outputs"]] == [["batch", 10]]
    assert signature["symbols"] == [{"name": "batch", "min": 1, "max": 1024}]


@pytest.mark.parametrize("batch", [1, 3])
def test_json(client: TestClient, mlp: ModuleType, batch: int) -> None:
    features = np.random.default_rng(batch).standard_normal((batch, 512), np.float32)
    answer = client.post("/predict", json={"features": features.tolist()})
    assert answer.status_code == 200, answer.text
    (output,) = answer.json().values()
    np.testing.assert_allclose(np.array(output), expected(mlp, features), rtol=1e-4, atol=1e-5)


def test_npz(client: TestClient, mlp: ModuleType) -> None:
    features = np.random.default_rng(7).standard_normal((5, 512), np.float32)
    answer = client.post("/predict", content=npz(features=features), headers=NPZ)
    assert answer.status_code == 200, answer.text
    (output,) = np.load(io.BytesIO(answer.content)).values()
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, expected(mlp, features), rtol=1e-4, atol=1e-5)


def test_json_has_null_for_nan(client: TestClient) -> None:
    answer = client.post("/predict", content=b'{"features": [[' + b", ".join([b"NaN"] * 512) + b"]]}")
    assert answer.status_code == 200, answer.text
    (output,) = answer.json().values()
    assert output == [[None] * 10]


def test_refusals(client: TestClient) -> None:
    row = [0.0] * 512
    assert "not JSON" in refusal(client, content=b"{")
    assert "JSON object" in refusal(client, json=[row])
    assert "'features' is missing" in refusal(client, json={})
    assert "no input 'other'" in refusal(client, json={"features": [row], "other": 1})
    assert "f32[batch, 512]" in refusal(client, json={"features": [row, row[:-1]]})
    assert "f32[batch, 512]" in refusal(client, json={"features": [["a"] * 512]})
    assert "511" in refusal(client, json={"features": [row[:-1]]})
    assert "features" in refusal(client, json={"features": []})
    assert "features" in refusal(client, content=npz(features=np.zeros((1, 512))), headers=NPZ)
    assert "not a .npz" in refusal(client, content=b"PK nonsense", headers=NPZ)
    pickled = npz(features=np.array([{}], object))
    assert "plain arrays" in refusal(client, content=pickled, headers=NPZ)


def npy(header: str, data: bytes = b"") -> bytes:
    """A .npz whose one array has this header."""
    text = header.encode().ljust(117) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data)
    return buffer.getvalue()


LYING = "{'descr': %s, 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    "body",
    [
        b'{"features": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"\\ud800": 1, "features": []}',
        b'{"features": "\\udfff"}',
        b'{"features": [' + b"9" * 5000 + b"]}",
        b'{"features": [1e999, "x"]}',
        b"\xff\xfe",
    ],
)
def test_odd_json_is_refused(client: TestClient, body: bytes) -> None:
    assert refusal(client, content=body)


@pytest.mark.parametrize(
    "body",
    [
        npy(LYING % ("'<f4'", "(2, 512)")),
        npy(LYING % ("'<f4'", "(2, 512)"), bytes(4 * 1024 + 1)),
        npy(LYING % ("'<f4'", "(-1, -512)"), bytes(2048)),
        npy(LYING % ("'|O'", "(1,)"), bytes(8)),
        npy(LYING % ("'nonsense'", "(1,)"), bytes(8)),
        npy(LYING % ("'<f4'", "'x'"), bytes(8)),
        npy("{"),
        npy("__import__('os')"),
        npz(features=np.zeros((1, 512), np.float32))[:-30],
        b"",
    ],
)
def test_lying_npz_is_refused(client: TestClient, body: bytes) -> None:
    assert refusal(client, content=body, headers=NPZ)


def test_large_requests_are_refused(package: Path) -> None:
    service = module(EXAMPLES / "service" / "app.py")
    bomb = npy(LYING % ("'<f4'", "(100000, 512)"), bytes(100_000 * 512 * 4))
    promise = npy(LYING % ("'<f4'", "(1 << 40, 512)".replace("1 << 40", str(1 << 40))))
    assert len(bomb) < 300_000
    with TestClient(service.create_app(str(package), max_body=1 << 20)) as client:
        for content, headers in [(bomb, NPZ), (promise, NPZ), (b" " * (1 << 20 | 1), {})]:
            answer = client.post("/predict", content=content, headers=headers)
            assert answer.status_code == 413, answer.text
        answer = client.post("/predict", content=iter([b" " * 600_000] * 2))
        assert answer.status_code == 413, answer.text
        assert client.post("/predict", json={"features": [[0.0] * 512]}).status_code == 200


def test_a_token_that_is_none_is_the_clients_fault(tmp_path: Path) -> None:
    table = torch.nn.Embedding(10, 4).eval()
    package = mycc.compile(table, (torch.tensor([[1, 2, 3]]),), out=tmp_path / "table.pkg", verify=False)
    with TestClient(module(EXAMPLES / "service" / "app.py").create_app(str(package))) as client:
        assert client.post("/predict", json={"input": [[0, 9, 3]]}).status_code == 200
        assert "out of range" in refusal(client, json={"input": [[0, 10, 3]]})


def test_places_in_the_source_stay_on_the_server() -> None:
    service = module(EXAMPLES / "service" / "app.py")
    text = "index out of range in embedding (model.py:12)"
    assert service.without_places(text) == "index out of range in embedding"
    assert service.without_places("gather  /srv/m/net.py:7 failed") == "gather failed"


def test_a_slow_client_does_not_hold_up_the_end(package: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "service" / "app.py"), "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, "MYCC_PACKAGE": str(package), "MYCC_GRACE": "1"})
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                client = socket.create_connection(("127.0.0.1", port), timeout=5)
                break
            time.sleep(0.1)
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        time.sleep(0.5)
        server.terminate()
        server.wait(timeout=30)
    finally:
        server.kill()
        client.close()


def test_no_package_and_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = module(EXAMPLES / "service" / "app.py")
    monkeypatch.delenv("MYCC_PACKAGE", raising=False)
    with pytest.raises(RuntimeError, match="MYCC_PACKAGE"), TestClient(service.app):
        pass
    damaged = tmp_path / "damaged.pkg"
    damaged.write_bytes(b"not a package")
    with pytest.raises(mycc.LoadError), TestClient(service.create_app(str(damaged))):
        pass


def test_the_service_needs_no_torch(package: Path) -> None:
    program = f"""
import sys
sys.modules["torch"] = None  # an import of torch fails
sys.path.insert(0, {str(EXAMPLES / "service")!r})
from app import create_app
from fastapi.testclient import TestClient
with TestClient(create_app({str(package)!r})) as client:
    answer = client.post("/predict", json={{"features": [[0.5] * 512]}})
    assert answer.status_code == 200, answer.text
"""
    subprocess.run([sys.executable, "-c", program], check=True)
