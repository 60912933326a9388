"""The type of FX nodes for the passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.fx

if TYPE_CHECKING:

    class Node(torch.fx.Node):
        """An FX node whose operands are what its operator's schema says, instead of anything that FX could hold."""

        args: Any
        kwargs: Any
        target: Any
        users: dict[Any, None]
        all_input_nodes: Any

else:
    Node = torch.fx.Node

__all__ = ["Node"]
