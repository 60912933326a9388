"""Matrix nodes of the loop IR as launches of Triton kernels."""

from __future__ import annotations

from ...ir.plans.gpu import AttentionPlan, ProductPlan
from ...ir.structured import Attention, Conv, Gemm
from .attention import attention_launch
from .conv import conv_launch
from .gemm import gemm_launch
from .gemm_planes import planes_launch
from .kernel import Launch


def product_launch(node: Gemm | Conv, name: str, plan: ProductPlan) -> Launch:
    """The launch of a product or a convolution."""
    if isinstance(node, Conv):
        return conv_launch(name, node, plan)
    return planes_launch(name, node, plan) if plan.form == "planes" else gemm_launch(name, node, plan)


def matrix_launches(node: Gemm | Conv | Attention, name: str, plan: ProductPlan | AttentionPlan) -> tuple[Launch, ...]:
    """The launches of a matrix node: one, or one for each range of sizes that has a plan of its own."""
    if isinstance(node, Attention):
        assert isinstance(plan, AttentionPlan)
        return (attention_launch(name, node, plan),)
    assert isinstance(plan, ProductPlan)
    return tuple(product_launch(node, name, own) for own in (plan, *plan.variants))
