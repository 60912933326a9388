"""From the kernels and launches of a GPU target to its images and its host program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .compile import BuildOptions, BuildResult, build
from .images import KernelImage
from .targets import Target
from .triton_compile import compile_kernels

if TYPE_CHECKING:
    from ..codegen.cuda_program import CompiledKernel
    from ..codegen.triton.generate import DeviceCode
    from ..weights import Weights

__all__ = ["PROGRAM", "build_device", "host_program"]

PROGRAM = "program.cpp"


def build_device(code: DeviceCode, target: Target, weights: Weights, options: BuildOptions) -> tuple[BuildResult, str]:
    """The target's library with the images of its kernels, and the text of its host program.

    Raises:
        CompileError: see compile_kernels and build.
    """
    from ..codegen.cuda_program import pack_images

    kernels = compile_kernels(code.kernels, target, options)
    text = host_program(code, kernels.images, target, weights)
    program = build({PROGRAM: text}, {}, target, options)
    images, _ = pack_images([_compiled(image) for image in kernels.images])
    result = replace(
        program,
        compiled=program.compiled + kernels.compiled,
        cached=program.cached + kernels.cached,
        seconds=program.seconds + kernels.seconds,
        log=(*kernels.log, *program.log),
        images=images,
        kernels=kernels.images,
    )
    return result, text


def host_program(code: DeviceCode, images: tuple[KernelImage, ...], target: Target, weights: Weights) -> str:
    """The C++ text that launches the kernels."""
    from ..codegen.cuda_program import render_cuda_program

    compiled = [_compiled(image) for image in images]
    return render_cuda_program(code.entries, compiled, target.name, weights.offsets, weights.device, len(weights.state))


def _compiled(image: KernelImage) -> CompiledKernel:
    from ..codegen.cuda_program import CompiledKernel

    facts = image.facts
    scratch = facts["scratch_bytes"], facts["scratch_alignment"]
    return CompiledKernel(image.symbol, image.image, facts["threads"], facts["shared"], *scratch, facts["hidden"])
