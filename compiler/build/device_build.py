"""From the kernels and launches of a GPU target to its images and its host program."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ..machine.local_cpu import available_cores
from ..machine.targets import Target
from .compile import BuildOptions, BuildResult, build
from .images import KernelImage
from .triton_compile import CompiledKernels, compile_for_targets

if TYPE_CHECKING:
    from ..codegen.cuda.generate import DeviceCode
    from ..codegen.host.cuda_program import CompiledKernel
    from ..weights.collect import Weights

__all__ = ["PROGRAM", "build_devices", "host_program"]

PROGRAM = "program.cpp"


def build_devices(
    codes: Mapping[Target, DeviceCode], weights: Weights, options: BuildOptions, contract: str = ""
) -> dict[Target, tuple[BuildResult, str]]:
    """Each target's library with the images of its kernels, and the text of its host program.

    Raises:
        CompileError: see compile_kernels and build.
    """
    work = [(code.kernels, target) for target, code in codes.items()]
    compiled = compile_for_targets(work, options) if work else []

    def built(target: Target, kernels: CompiledKernels) -> tuple[BuildResult, str]:
        text = host_program(codes[target], kernels.images, target, weights, contract)
        return _with_kernels(build({PROGRAM: text}, {}, target, options), kernels), text

    with ThreadPoolExecutor(options.jobs or available_cores()) as pool:
        return dict(zip(codes, pool.map(built, codes, compiled), strict=True))


def _with_kernels(program: BuildResult, kernels: CompiledKernels) -> BuildResult:
    from ..codegen.host.cuda_program import pack_images

    images, _ = pack_images([_compiled(image) for image in kernels.images])
    return replace(
        program,
        compiled=program.compiled + kernels.compiled,
        cached=program.cached + kernels.cached,
        seconds=program.seconds + kernels.seconds,
        log=(*kernels.log, *program.log),
        images=images,
        kernels=kernels.images,
    )


def host_program(
    code: DeviceCode, images: tuple[KernelImage, ...], target: Target, weights: Weights, contract: str = ""
) -> str:
    """The C++ text that launches the kernels."""
    from ..codegen.host.cuda_program import render_cuda_program

    compiled = [_compiled(image) for image in images]
    return render_cuda_program(
        code.entries, compiled, target.name, weights.offsets, weights.device, len(weights.state), contract
    )


def _compiled(image: KernelImage) -> CompiledKernel:
    from ..codegen.host.cuda_program import CompiledKernel

    facts = image.facts
    scratch = facts["scratch_bytes"], facts["scratch_alignment"]
    return CompiledKernel(image.symbol, image.image, facts["threads"], facts["shared"], *scratch, facts["hidden"])
