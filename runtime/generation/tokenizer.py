"""The package's tokenizer.json through the `tokenizers` library, and its chat template through jinja2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..errors import InputError, LoadError

__all__ = ["Tokenizer", "compiled_template"]


#: more characters than tokens of a language have on average, by far
_CHARACTERS = 32


class Tokenizer:
    """Texts to numbers of tokens and back.

    Args:
        data: tokenizer.json.
        template: the chat template; None without one.
        special: texts of the special tokens, by the names that a template gives them ("bos_token").

    Raises:
        InputError: `tokenizers` is not installed.
        LoadError: tokenizer.json is not one.
    """

    def __init__(self, data: bytes, template: str | None, special: Mapping[str, str]) -> None:
        try:
            import tokenizers
        except ImportError:
            raise InputError(
                "texts need the tokenizers library, which is not installed",
                hint="pip install tokenizers; or give numbers of tokens, which need numpy alone.",
            ) from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises Exception itself
            raise LoadError(f"the package's tokenizer.json cannot be read: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._template, self._special = template, dict(special)
        self._compiled: Any = None

    def encode(self, text: str, special: bool = True, most: int | None = None, bound: int | None = None) -> list[int]:
        """Numbers of the text's tokens. special: with those that the tokenizer puts around a text, such as <s>; most:
        at most so many, of the text's beginning, with those around it.

        bound: how many the caller takes. A text whose beginning has more than twice as many is refused (InputError)
        before the rest is read, as the tokenizer takes a minute for megabytes.
        """
        if not isinstance(text, str):
            raise InputError(f"a text is a str, not a {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the text has half a surrogate pair at {error.start}, which is no character") from None
        read = bound if most is None else most
        begin = text if read is None else text[: _CHARACTERS * (read + 1)]
        tokens = list(self._tokenizer.encode(begin, add_special_tokens=special).ids)
        if read is not None and len(begin) < len(text):
            if len(tokens) <= 2 * read:
                begin, tokens = text, list(self._tokenizer.encode(text, add_special_tokens=special).ids)
            elif most is None:
                raise InputError(
                    f"the text has more than {2 * read} tokens; the package takes {read}",
                    hint="Shorten it, or compile with a larger length.",
                )
        if most is None or len(tokens) <= most:
            return tokens
        plain = self._tokenizer.encode(begin, add_special_tokens=False)
        plain.truncate(max(most - self._tokenizer.num_special_tokens_to_add(False), 1))
        return list(self._tokenizer.post_process(plain, None, special).ids)[:most]

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """The text of these tokens. special: with the special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=not special))

    def text_of(self, token: int) -> str:
        """One token as it stands in the vocabulary."""
        return self.decode([token], special=True)

    def chat(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The prompt for an answer to a conversation, by the chat template.

        messages: {"role": "user", "content": "..."}, in their order; a content may be a list of {"type": "text",
        "text": "..."}. values: what else the template may use (tools).
        """
        if self._template is None:
            raise InputError(
                "the package has no chat template", hint="The model's folder had none: use generate with a text."
            )
        several = isinstance(messages, Iterable) and not isinstance(messages, str | Mapping)
        messages = list(messages) if several else []
        if not messages:
            raise InputError('messages has to be a list of messages, {"role": "user", "content": "..."}')
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InputError('a message is a dict with "role" and "content"')
        try:
            template = self._compiled = self._compiled or compiled_template(self._template)
            known = {
                "messages": [_of_one_text(message) for message in messages],
                "add_generation_prompt": True,
                "tools": None,
                "documents": None,
            }
            return str(template.render(**{**self._special, **known, **values}))
        except InputError:
            raise
        except Exception as error:  # whatever a template does
            raise InputError(f"the chat template does not take these messages: {error}") from None


def _of_one_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose content is one text, where it is a list of texts; others as they are."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        return message
    if any(not isinstance(p, Mapping) or p.get("type") != "text" or not isinstance(p.get("text"), str) for p in parts):
        return message
    return {**message, "content": "".join(part["text"] for part in parts)}


def compiled_template(text: str) -> Any:
    """A template with what those of Hugging Face's models expect, in jinja2's sandbox.

    Raises:
        InputError: it is no template, told with its line; or jinja2 is not installed.
    """
    try:
        import jinja2
        from jinja2.ext import Extension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InputError("chats need jinja2, which is not installed", hint="pip install jinja2") from None
    import json
    from datetime import datetime

    class Generation(Extension):
        """{% generation %}...{% endgeneration %}, which marks answers for training, is what stands in it."""

        tags = {"generation"}  # noqa: RUF012 (as the base class declares it)

        def parse(self, parser: Any) -> Any:
            """The statements up to the end of the block."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"the chat template cannot be read at line {error.lineno}: {error.message}") from None
