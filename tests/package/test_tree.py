from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mycc
import pytest
import torch
from mycc.runtime.errors import InputError
from mycc.runtime.tree import Arguments, plan_output

LEAF = "*"


class T(int):
    """Stands for a tensor: a number is not taken for one."""


A, B, C, D, E, F, G = map(T, range(1, 8))


def arguments(*positional: Any, names: list[str], **keywords: Any) -> Arguments:
    tree = {"tuple": [{"tuple": list(positional)}, {"dict": [[key, value] for key, value in keywords.items()]}]}
    return Arguments(tree, names, "forward")


def test_plain_tensors_need_no_flattening() -> None:
    plan = arguments(LEAF, LEAF, names=["a", "b"])
    assert plan.plain == 2
    assert plan.flatten((), {"b": B, "a": A}) == [A, B]
    assert plan.flatten((A,), {"b": B}) == [A, B]


def test_keywords_may_be_given_by_position_and_in_any_order() -> None:
    plan = arguments(LEAF, names=["ids", "mask", "bias"], mask=LEAF, bias=LEAF)
    assert plan.flatten((A,), {"bias": C, "mask": B}) == [A, B, C]
    assert plan.flatten((A, B, C), {}) == [A, B, C]


def test_nested_structures_are_flattened_in_order_of_the_inputs() -> None:
    past = {"list": [{"tuple": [LEAF, LEAF]}, {"tuple": [LEAF, LEAF]}]}
    plan = arguments(
        LEAF, {"dict": [["b", LEAF], ["a", LEAF]]}, names=["x", "b", "a", "k0", "v0", "k1", "v1"], past=past
    )
    assert plan.plain == -1
    flat = plan.flatten((A, {"a": C, "b": B}), {"past": [(D, E), (F, G)]})
    assert flat == [A, B, C, D, E, F, G]


def test_objects_and_named_tuples_are_read_by_field() -> None:
    tree = {"object": "x.Cache", "fields": [["key", LEAF], ["value", LEAF]]}
    plan = arguments(tree, names=["key", "value"])
    assert plan.flatten((SimpleNamespace(key=A, value=B),), {}) == [A, B]
    assert plan.flatten(({"key": A, "value": B},), {}) == [A, B]
    named = arguments({"namedtuple": "Pair", "fields": [["l", LEAF], ["r", LEAF]]}, names=["l", "r"])
    assert named.flatten(((A, B),), {}) == [A, B]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((A,), {}, "forward() misses arguments 'mask', 'scale'"),
        ((A, B), {}, "forward() misses argument 'scale'"),
        ((A, B, 3.0, D), {}, "forward() takes 3 arguments but 4 were given"),
        ((A,), {"mask": B, "scale": 3.0, "masks": E}, "forward() has no argument 'masks'"),
        ((A,), {"ids": A, "mask": B, "scale": 3.0}, "forward() got argument 'ids' twice, by position and by name"),
        ((A, None, 3.0), {}, "argument 'mask' has to be a tensor, not None"),
        ((A, 2.5, 3.0), {}, "argument 'mask' has to be a tensor, not 2.5"),
        ((A, B, 4.0), {}, "argument 'scale' was compiled as the constant 3.0, but is 4.0"),
        ((A, B, 3), {}, "argument 'scale' was compiled as the constant 3.0, but is 3"),
    ],
)
def test_wrong_arguments_are_named(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    plan = arguments(LEAF, names=["ids", "mask"], mask=LEAF, scale={"const": 3.0})
    with pytest.raises(InputError) as caught:
        plan.flatten(args, kwargs)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([A], "argument 'states' has to have 2 elements, but has 1"),
        (7, "argument 'states' has to be a list of 2, not 7"),
        ([A, {"h": B}], "argument 'states[1]' has to have keys 'h', 'c', but has keys 'h'"),
        ([A, (B, C)], "argument 'states[1]' has to be a dict with keys 'h', 'c', not a tuple"),
        ([A, {"h": B, "c": None}], "argument 'states[1]['c']' has to be a tensor, not None"),
    ],
)
def test_wrong_structures_are_named_by_their_path(value: Any, message: str) -> None:
    tree = {"list": [LEAF, {"dict": [["h", LEAF], ["c", LEAF]]}]}
    plan = arguments(names=["s", "h", "c"], states=tree)
    with pytest.raises(InputError) as caught:
        plan.flatten((), {"states": value})
    assert caught.value.message == message


def test_outputs_are_rebuilt() -> None:
    assert plan_output(LEAF)([1]) == 1
    assert plan_output({"tuple": [LEAF, LEAF]})([1, 2]) == (1, 2)
    assert plan_output({"list": [LEAF]})([1]) == [1]
    nested = {"dict": [["a", LEAF], ["b", {"tuple": [LEAF, {"const": 5}, {"none": None}, {"list": []}]}]]}
    assert plan_output(nested)([1, 2]) == {"a": 1, "b": (2, 5, None, [])}
    pair = plan_output({"namedtuple": "torch.return_types.Pair", "fields": [["left", LEAF], ["right", LEAF]]})([1, 2])
    assert (pair.left, pair.right, type(pair).__name__) == (1, 2, "Pair")


def test_output_objects_are_read_only_records() -> None:
    tree = {"object": "transformers.ModelOutput", "fields": [["logits", LEAF], ["past", {"tuple": [LEAF, LEAF]}]]}
    out = plan_output(tree)([1, 2, 3])
    assert (out.logits, out["logits"], out[0], out.past, out[1:]) == (1, 1, 1, (2, 3), ((2, 3),))
    assert (list(out), dict(out), "past" in out, len(out)) == (
        ["logits", "past"],
        {"logits": 1, "past": (2, 3)},
        True,
        2,
    )
    assert repr(out) == "ModelOutput(logits=1, past=(2, 3))"
    with pytest.raises(AttributeError, match="ModelOutput is read-only"):
        out.logits = 3
    with pytest.raises(AttributeError, match="ModelOutput has no field 'hidden'; it has logits, past"):
        _ = out.hidden
    assert pickle.loads(pickle.dumps(out)).to_tuple() == (1, (2, 3))


def test_results_by_empty_names(tmp_path: Path) -> None:
    """They have names of their own in the manifest, which allows no empty one."""

    def named(x: torch.Tensor) -> dict[str, Any]:
        return {"": x + 1, "a": {"": (x * 2,)}}

    x = torch.ones(2)
    found = mycc.load(mycc.compile(named, (x,), out=tmp_path / "named.pkg", verify=False))(x)
    assert list(found) == ["", "a"]
    assert found[""].tolist() == found["a"][""][0].tolist() == [2, 2]
