"""The page of `mycc explain` in headless Chromium: what a script finds in it, and pictures of it."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SIZE", "difference", "needs_browser", "run_in_browser", "screenshot"]

CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian's package: chromium)")

SIZE = (1200, 760)  # of the window, in points
_SCALE = 0.35  # pixels of a picture for a point


def run_in_browser(page: str, script: str, folder: Path) -> Any:
    """What `script`, the body of an async function, returns in the page."""
    answer = (
        "addEventListener('error', (e) => { document.title = JSON.stringify({ error: e.message }); });"
        f"addEventListener('load', async () => {{ const answer = await (async () => {{ {script} }})();"
        "document.title = JSON.stringify(answer); });"
    )
    dom = _chromium(page, answer, folder, "--dump-dom").stdout
    found = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert found, dom[:2000]
    return json.loads(html.unescape(found[1]))


def screenshot(page: str, script: str, folder: Path, out: Path) -> None:
    """Writes a picture of the page behind `script`, as PNG."""
    act = f"addEventListener('load', async () => {{ {script}; await tick(); }});"
    _chromium(page, act, folder, f"--screenshot={out}", f"--force-device-scale-factor={_SCALE}")
    assert out.exists()


def _chromium(page: str, script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tick = "const tick = () => new Promise((done) => setTimeout(done, 30));"
    file = folder / "page.html"
    file.write_text(page.replace("</body>", f"<script>{tick}{script}</script></body>"), encoding="utf-8")
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}", f"--user-data-dir={folder / 'profile'}",
               "--virtual-time-budget=20000", *options, file.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def difference(a: Path, b: Path, folder: Path) -> tuple[float, float]:
    """(mean, largest) difference of two pictures in squares of 12 by 12 pixels, 0 to 1: fonts may differ, what
    lies where may not."""
    # images of the document itself: its load event waits for them, and drawing one decodes it at once
    images = [f'<img src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">' for path in (a, b)]
    script = """
    const squares = (picture) => {
      const w = Math.ceil(picture.naturalWidth / 12), h = Math.ceil(picture.naturalHeight / 12);
      const small = Object.assign(document.createElement("canvas"), { width: w, height: h }).getContext("2d");
      small.imageSmoothingQuality = "high"; small.drawImage(picture, 0, 0, w, h);
      return [...small.getImageData(0, 0, w, h).data];
    };
    const [a, b] = [...document.images].map(squares);
    if (a.length !== b.length) return [1, 1];
    const apart = a.map((v, i) => Math.abs(v - b[i]) / 255);
    return [apart.reduce((t, v) => t + v, 0) / apart.length, Math.max(...apart)];
    """
    mean, most = run_in_browser(f"<title></title><body>{''.join(images)}</body>", script, folder)
    return mean, most
