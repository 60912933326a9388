"""Jinja templates of the generated sources: cpu/ and cuda/ for kernels, host/ for the program that calls them; bench/
for the report of a comparison. explain/ is the page of `mycc explain`: plain HTML, CSS and JavaScript.
"""

from pathlib import Path

TEMPLATES = Path(__file__).resolve().parent
