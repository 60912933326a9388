"""What mycc's quantised models are measured beside: ONNX Runtime, OpenVINO and torchao with torch.compile.

Each function takes a float32 model with its inputs, a folder that keeps what it makes, and a number of threads; it
gives functions of no arguments by their labels. Calibration is on the inputs of the measurement.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["PEERS", "Run"]

Run = Callable[[], Any]
Inputs = tuple[torch.Tensor, ...]


def _onnx(model: Any, args: Inputs, folder: Path) -> dict[str, Path]:
    """The model as ONNX: float32, quantised dynamically, and statically (QDQ, a scale for each output channel)."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared = folder / "plain.onnx", folder / "prepared.onnx"
    made = {"float32": plain, "int8-dynamic": folder / "dynamic.onnx", "int8": folder / "static.onnx"}
    if made["int8"].exists():
        return made
    names = [f"x{i}" for i in range(len(args))]
    torch.onnx.export(model, args, str(plain), input_names=names, dynamo=False)
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{name: a.numpy() for name, a in zip(names, args, strict=True)}]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    quantize_dynamic(str(prepared), str(made["int8-dynamic"]), weight_type=QuantType.QInt8)
    quantize_static(str(prepared), str(made["int8"]), Samples(), per_channel=True)
    return made


def ort(model: Any, args: Inputs, folder: Path, threads: int) -> dict[str, Run]:
    import onnxruntime

    found: dict[str, Run] = {}
    for name, path in _onnx(model, args, folder).items():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        given = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args, strict=True)}
        found[f"ort {name}"] = lambda session=session, given=given: session.run(None, given)
    return found


def openvino(model: Any, args: Inputs, folder: Path, threads: int) -> dict[str, Run]:
    """Static: of ONNX Runtime's QDQ, whose layers OpenVINO runs in int8. Float32 with its own precision kept."""
    import openvino as ov

    found: dict[str, Run] = {}
    paths = _onnx(model, args, folder)
    for name in ("float32", "int8"):
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        compiled = ov.Core().compile_model(str(paths[name]), "CPU", settings)
        request = compiled.create_infer_request()
        arrays = [a.numpy() for a in args]
        found[f"openvino {name}"] = lambda request=request, arrays=arrays: list(request.infer(arrays).values())
    return found


def torchao(model: Any, args: Inputs, folder: Path, threads: int) -> dict[str, Run]:
    """Dynamic: quantize_ of the linear layers. Static: PT2E with X86InductorQuantizer. Both compiled and frozen."""
    del folder, threads  # the threads are those of torch; torch.compile keeps its own cache
    import torch._inductor.config as settings
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    settings.freezing = True
    torch._dynamo.reset()
    dynamic = copy.deepcopy(model)
    quantize_(dynamic, Int8DynamicActivationInt8WeightConfig())
    modules = {"int8-dynamic": dynamic}
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    try:
        prepared = prepare_pt2e(torch.export.export(model, args).module(), quantizer)
    except IndexError:  # torchao 0.18 finds no end of a partition in BERT and ViT
        print("torchao: X86InductorQuantizer takes no such model", flush=True)
    else:
        prepared(*args)
        modules["int8"] = move_exported_model_to_eval(convert_pt2e(prepared))
    found: dict[str, Run] = {}
    for name, module in modules.items():
        compiled = torch.compile(module)
        compiled(*args)
        found[f"torchao {name}"] = lambda compiled=compiled: compiled(*args)
    return found


#: by the word that the command line takes
PEERS = {"ort": ort, "openvino": openvino, "torchao": torchao}
