"""Matrix nodes of the loop IR as launches of Triton kernels."""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.plans.gpu import AttentionPlan, GradientPlan, ProductPlan
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from .attention import attention_launch
from .attention_gradient import gradient_launches
from .conv import conv_launch
from .conv_gradient import weight_launches
from .gemm import gemm_launch
from .gemm_planes import planes_launch
from .kernel import BufferArg, Launch, WorkArg
from .maps import map_launch


def product_launch(node: Gemm | Conv, name: str, plan: ProductPlan) -> Launch:
    """The launch of a product or a convolution."""
    if isinstance(node, Conv):
        return conv_launch(name, node, plan)
    return planes_launch(name, node, plan) if plan.form == "planes" else gemm_launch(name, node, plan)


def matrix_launches(
    node: Gemm | Conv | Attention | AttentionGradient, name: str, plan: ProductPlan | AttentionPlan | GradientPlan
) -> tuple[Launch, ...]:
    """The launches of a matrix node: one, or one for each part or each range of sizes that has a plan of its own."""
    if isinstance(node, AttentionGradient):
        assert isinstance(plan, GradientPlan)
        return gradient_launches(name, node, plan)
    if isinstance(node, Attention):
        assert isinstance(plan, AttentionPlan)
        return (attention_launch(name, node, plan),)
    assert isinstance(plan, ProductPlan)
    return tuple(launch for own in (plan, *plan.variants) for launch in _launches(node, name, own))


def _launches(node: Gemm | Conv, name: str, plan: ProductPlan) -> tuple[Launch, ...]:
    """The launch of a product, behind that of its weights where they become floats first, or those of a gradient."""
    made = plan.dequantise
    if isinstance(node, Conv) and node.algorithm == "pixels":
        return weight_launches(name, node, plan)
    if made is None:
        return (product_launch(node, name, plan),)
    product = gemm_launch(name, made.product, plan)
    weights = map_launch(made.node, f"{name}_weights", made.plan)
    weights = replace(weights, grid=(weights.grid[0] * product.when, *weights.grid[1:]), when=product.when)
    scratch = WorkArg(made.bytes * product.when)
    return tuple(_with_scratch(launch, made.weights, scratch) for launch in (weights, product))


def _with_scratch(launch: Launch, buffer: Buffer, scratch: WorkArg) -> Launch:
    """The launch with scratch memory in the place of a buffer."""
    return replace(
        launch, args=tuple(scratch if isinstance(a, BufferArg) and a.buffer is buffer else a for a in launch.args)
    )
