"""Our own decompositions, of all families."""

from __future__ import annotations

from . import (
    basic as decompositions,
)
from . import (
    fake_quantize as decompositions_rounding,
)
from . import (
    gradients as decompositions_gradients,
)
from . import (
    grid_sample as decompositions_sampling,
)
from . import (
    indexing as decompositions_indexing,
)
from . import (
    layers as decompositions_layers,
)
from . import (
    linalg as decompositions_linalg,
)
from . import (
    margin_losses as decompositions_margins,
)
from . import (
    products as decompositions_products,
)
from . import (
    recurrent as decompositions_recurrent,
)
from . import (
    resize as decompositions_resize,
)
from . import (
    signal as decompositions_signal,
)
from . import (
    vision as decompositions_vision,
)
from .definitions import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "FAMILIES"]

FAMILIES = (
    decompositions,
    decompositions_gradients,
    decompositions_indexing,
    decompositions_layers,
    decompositions_linalg,
    decompositions_margins,
    decompositions_products,
    decompositions_recurrent,
    decompositions_resize,
    decompositions_rounding,
    decompositions_sampling,
    decompositions_signal,
    decompositions_vision,
)
