"""The statements of random programs that write in place: rows of text over names of tensors."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FRESH", "VIEWS", "WRITES", "Row"]


@dataclass(frozen=True)
class Row:
    """kinds: of the operands, a letter each: a(ny), f(loat), m(atrix or more), s(quare). raw: operands behind the first
    are read as they lie while the first is written: torch says nothing of memory that both have. writes: to the first.
    """

    kinds: str
    text: str
    raw: bool = False
    writes: bool = False


def _rows(table: str, writes: bool = False) -> tuple[Row, ...]:
    found = []
    for line in table.strip().splitlines():
        kinds, _, text = (part.strip() for part in line.partition("|"))
        found.append(Row(kinds.rstrip("!"), text, kinds.endswith("!"), writes))
    return tuple(found)


VIEWS = _rows("""
    a | {0}[1:]
    a | {0}[:-1]
    a | {0}[::2]
    a | {0}[0]
    a | {0}[-1]
    m | {0}[..., 0]
    m | {0}[..., 1:3]
    m | {0}[:, 1]
    m | {0}[:, ::2]
    m | {0}.transpose(0, -1)
    m | {0}.mT
    m | {0}.movedim(0, -1)
    a | {0}.unsqueeze(0)
    a | {0}[..., None]
    a | {0}.view(-1)
    a | {0}.reshape(-1)
    m | {0}.flatten(0, 1)
    a | {0}.expand(2, *{0}.shape)
    a | {0}.unsqueeze(-1).expand(*{0}.shape, 2)
    m | {0}.diagonal()
    a | {0}.detach()
    a | {0}.narrow(0, 1, 2)
    a | {0}.chunk(2)[1]
    a | {0}.split(2)[0]
    a | {0}.unbind(0)[1]
    a | {0}.unfold(0, 2, 1)
    a | {0}.squeeze(0)
    a | {0}.contiguous()
    a | {0}.view_as({0})
    a | {0}.select(-1, 1)
    a | {0}.as_strided((2, 2), (1, 1))
    a | {0}.as_strided((2, 2), (2, 1))
    a | {0}.to({0}.dtype)
""")
FRESH = _rows("""
    a  | {0} + 1
    a  | {0}.clone()
    a  | {0}[k0]
    m  | {0}[:, k0]
    a  | {0}.flip(0)
    aa | torch.cat([{0}, {1}])
    aa | {0} - {1}
    aa | {0} * {1}.clamp(-2, 2)
    a  | {0}.sum(0, keepdim=True)
    a  | {0}.roll(1, 0)
    aa | torch.where({0} > 0, {0}, {1})
    a  | torch.zeros_like({0})
    a  | {0}.cumsum(0).clamp(-9, 9)
    a  | {0}.amax()
    m  | {0}.transpose(0, -1).contiguous()
    a  | {0}.repeat(2, *[1] * ({0}.dim() - 1))
    a  | {0}.float()
    a  | torch.arange({0}.numel()).reshape({0}.shape).to({0}.dtype)
""")
_SCATTERED = "k0.reshape(-1, *[1] * ({0}.dim() - 1)).expand(-1, *{0}.shape[1:])"
WRITES = _rows(
    """
    a   | {0}.add_(1)
    a   | {0}[...] += 1
    a   | {0}.mul_(-1)
    f   | {0}.mul_(0.5)
    a   | {0}.neg_()
    a   | {0}.clamp_(-4, 4)
    a   | {0}.zero_()
    a   | {0}.fill_(2)
    a   | {0}.abs_()
    a   | {0}.masked_fill_({0} > 1, -1)
    a   | {0}.cumsum_(0)
    a   | {0}.copy_({0}.flip(0))
    s   | {0}.copy_({0}.mT + 1)
    s   | {0}.add_({0}.mT * 2)
    m   | {0}.tril_()
    a   | {0}[1:] = {0}[:-1] * 2
    a   | {0}[:-1] += {0}[1:] + 1
    a   | {0}[::2] -= {0}[::2].flip(0)
    m   | {0}[:, 1:] = {0}[:, :-1] + 1
    m   | {0}[:, 0] = {0}[:, 1]
    m   | {0}[1] = {0}[0]
    a   | {0}[0] = 3
    a   | {0}[k0] += 1
    a   | {0}[k0] *= 2
    a   | {0}[k0] = {0}[k0].flip(0)
    f   | {0}[k0] = {0}[k0] * 0.5 + 1
    m   | {0}[:, k0] -= 1
    m   | {0}[:, k0] = {0}[:, k0] * 2
    m   | {0}[k0, k0] += 1
    a   | {0}[..., k0] += {0}[..., k0].abs()
    a   | {0}[k0[0]] += 1
    a   | {0}[k0] = 0
    a   | {0}.index_fill_(0, k0, 3)
    a   | {0}.index_add_(0, k0, {0}[k0])
    a   | {0}.index_copy_(0, k0, {0}[k0] + 1)
    m   | {0}.index_copy_(1, k0, {0}[:, k0] - 1)
    a   | {0}.index_put_((k0,), {0}[k0] + 1, accumulate=True)
    a   | {0}[{0} > 0] = 1
    a   | {0}.masked_scatter_({0} > 0, {0}.flip(0))
    a   | {0}.put_(k0, {0}.flatten()[k0] + 1)
    a   | {0}.put_(k0, {0}.flatten()[k0], accumulate=True)
    a   | {0}.scatter_(0, SCATTERED, {0}[k0] + 1)
    a   | {0}.scatter_add_(0, SCATTERED, {0}[k0])
    a   | {0}.scatter_reduce_(0, SCATTERED, {0}[k0] * 2, "amax")
    a   | {0}.copy_({0}[{0}.shape[0] - 1].clone())
    a   | {0}.sub_({0}.sum(0).clamp(-9, 9))
    f   | {0}.sub_({0}.mean())
    aa! | {0}.add_({1})
    aa! | {0}.sub_({1})
    aa! | {0}.copy_({1})
    aa! | {0}[0] = {1}
    aa! | {0}[1:] = {1}
    aa! | {0}[k0] = {1}
    aa! | {0}.index_add_(0, k0, {1})
    aa! | {0}.index_copy_(0, k0, {1})
    aa  | {0}.add_({1} * 2)
    aa  | {0}.copy_({1} + 1)
    aa  | {0}[k0] = {1}[k0] + 1
    aa  | {0}[k0] += {1}[k0]
    aa  | {0}[0] = {1}.sum(0)
    ff  | {0}.lerp_({1} * 1, 0.5)
    ff  | {0}.mul_({1}.clamp(-1, 1) + 0)
""".replace("SCATTERED", _SCATTERED)
)
