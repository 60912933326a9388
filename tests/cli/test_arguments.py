"""arguments.py is the one list of what a compile takes: Python, the command line and the manifest follow it."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import mycc
import pytest
import typer
from mycc.arguments import (
    QUANTIZE_FORMATS,
    TASK_NAMES,
    Argument,
    CommonArguments,
    CompileArguments,
    QuantizedArguments,
    StepArguments,
    TaskArguments,
    TrainingArguments,
    arguments_of,
)
from mycc.cli import app
from mycc.compiler.generation.tasks import TASKS
from mycc.compiler.number_formats import FORMATS
from mycc.compiler.options import CompileOptions

#: function of the API -> its record
FUNCTIONS: dict[str, type] = {
    "compile": CompileArguments,
    "compile_training": TrainingArguments,
    "compile_generation": QuantizedArguments,
    "compile_image_text": QuantizedArguments,
    "compile_speech": QuantizedArguments,
    "compile_text2text": QuantizedArguments,
    "compile_embedding": CommonArguments,
    "compile_transformer": QuantizedArguments,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_their_record(name: str) -> None:
    function, record = getattr(mycc, name), arguments_of(FUNCTIONS[name])
    parameters = inspect.signature(function).parameters
    assert {n: parameters[n].default for n in record} == {n: argument.default for n, (_, argument) in record.items()}
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    for argument, (_, row) in record.items():
        assert f"        {argument}: {row.doc.split()[0]}" in function.__doc__
    with pytest.raises(
        TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'targt'; did you mean 'target'"
    ):
        function(None, out="x.pkg", targt="cpu")


def test_the_words_that_a_shell_completes_are_those_of_the_tables() -> None:
    assert sorted(TASK_NAMES) == sorted(TASKS)
    assert tuple(FORMATS) == QUANTIZE_FORMATS


def test_the_command_has_every_option() -> None:
    command = typer.main.get_command(app).commands["compile"]  # type: ignore[attr-defined]
    options: dict[str, Any] = {option: p for p in command.params for option in p.opts}
    for record in (CompileArguments, StepArguments, TaskArguments):
        for _, argument in arguments_of(record).values():
            for option in argument.option:
                assert options[option.partition("/")[0]].help == argument.help


def test_what_a_package_records_is_named_by_the_record() -> None:
    recorded = [name for name, (_, argument) in arguments_of(CompileArguments).items() if argument.recorded]
    assert {field.name for field in fields(CompileOptions)} >= set(recorded)
    changed = CompileOptions.of(threads=3, dtype="bf16", jobs=2, dump="d", specialize="batch=2").changed()
    assert changed == {"threads": 3, "dtype": "bf16", "specialize": {"batch": (2,)}}


def test_an_argument_says_what_it_is() -> None:
    for record in (TrainingArguments, CompileArguments):
        for name, (_, argument) in arguments_of(record).items():
            assert argument.doc, name
            assert isinstance(argument, Argument)
            assert bool(argument.help) == bool(argument.option), name
