"""No file of the project holds Infinity or NaN, and none that does is read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mycc.runtime.certificate import Certificate, CertificateCase, OutputCheck, parse, serialize
from mycc.runtime.errors import LoadError
from mycc.runtime.strict_json import decode, encode, finite
from mycc.runtime.tensorfile import encode_header


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_neither_written_nor_read(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"tolerance": [value]})
    text = str(value).replace("inf", "Infinity").replace("nan", "NaN")
    with pytest.raises(ValueError, match=f"the number {text}, which JSON does not have"):
        decode(f'{{"tolerance": {text}}}')


def test_a_report_has_none_instead() -> None:
    assert finite({"error": (1.0, math.inf), "rows": [{"eager": math.nan}]}) == {
        "error": [1.0, None],
        "rows": [{"eager": None}],
    }


def test_a_certificate_without_a_tolerance() -> None:
    case = CertificateCase("forward", {}, (), (OutputCheck((1,), np.zeros(1), math.inf),))
    with pytest.raises(ValueError, match="JSON"):
        serialize(Certificate((case,)))
    old = encode_header([], {"format": "mycc-certificate-1", "cases": '[{"tolerance": Infinity}]'})
    with pytest.raises(LoadError, match=r"the number Infinity(.|\n)*compile the model again"):
        parse(old)
