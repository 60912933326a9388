"""Milliseconds of whole models in float32 and in int8, beside ONNX Runtime in both: interleaved, medians, one process.

    python bench/quantized.py [--models bert,vit,resnet50,mobilenetv2] [--threads 1,2] [--batch 1] [--rounds 15]

mycc quantises by `quantize="int8-dynamic"` and, calibrated on the inputs of the measurement, `quantize="int8"`. ONNX
Runtime quantises the same float32 model by quantize_dynamic and quantize_static (QDQ, per channel). The error is the
largest difference from the float32 model, as a share of its largest output.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import torch
import zoo
from turns import timed

Run = Callable[[], Any]
FORMS = {"float32": {}, "int8-dynamic": {"quantize": "int8-dynamic"}, "int8": {"quantize": "int8"}}
CONVOLUTIONS = ("resnet50", "mobilenetv2")


def mycc_runs(model: Any, args: tuple[Any, ...], folder: Path, threads: int) -> dict[str, Run]:
    found: dict[str, Run] = {}
    arrays = [a.numpy() for a in args]
    for name, given in FORMS.items():
        path = folder / f"{name}.pkg"
        if not path.exists():
            calibrate = {"calibrate": [args]} if name == "int8" else {}
            mycc.compile(model, args, out=path, verify=False, **given, **calibrate)
        package = mycc.load(path, threads=threads)
        found[f"mycc {name}"] = lambda package=package: package(*arrays)
    return found


def ort_runs(model: Any, args: tuple[Any, ...], folder: Path, threads: int, static: bool) -> dict[str, Run]:
    import onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared = folder / "plain.onnx", folder / "prepared.onnx"
    if not plain.exists():
        names = [f"x{i}" for i in range(len(args))]
        torch.onnx.export(model, args, str(plain), input_names=names, dynamo=False)
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    names = [i.name for i in ort.InferenceSession(str(plain)).get_inputs()]
    given = {name: a.numpy() for name, a in zip(names, args, strict=True)}

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [given]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    kinds = {"float32": plain, "int8-dynamic": folder / "dynamic.onnx"}
    if not kinds["int8-dynamic"].exists():
        quantize_dynamic(str(prepared), str(kinds["int8-dynamic"]), weight_type=QuantType.QInt8)
    if static:
        kinds["int8"] = folder / "static.onnx"
        if not kinds["int8"].exists():
            quantize_static(str(prepared), str(kinds["int8"]), Samples(), per_channel=True)
    found: dict[str, Run] = {}
    for name, path in kinds.items():
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        found[f"ort {name}"] = lambda session=session: session.run(None, given)
    return found


def first(result: Any) -> np.ndarray[Any, Any]:
    while isinstance(result, list | tuple):
        result = result[0]
    return np.asarray(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,vit,resnet50,mobilenetv2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in options.models.split(","):
        model, args = zoo.ZOO[name].build(), zoo.ZOO[name].inputs(options.batch)
        with tempfile.TemporaryDirectory(prefix="mycc-quantized-") as folder, torch.inference_mode():
            for threads in map(int, options.threads.split(",")):
                torch.set_num_threads(threads)
                runs = mycc_runs(model, args, Path(folder), threads)
                runs |= ort_runs(model, args, Path(folder), threads, name in CONVOLUTIONS)
                wanted = first(runs["mycc float32"]())
                for label, spent in timed(runs, options.rounds).items():
                    error = float(np.abs(first(runs[label]()) - wanted).max() / np.abs(wanted).max())
                    print(f"{name:12} {threads} threads  {label:18} {spent:9.2f} ms   error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
