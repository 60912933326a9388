"""Chat templates, with what those of published models use beside jinja2's own statements."""

from __future__ import annotations

import mycc
import pytest

from .folders import train_tokenizer

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes, Gödel"}]


def chat(template: str) -> str:
    tokenizer = pytest.importorskip("mycc.runtime.generation.tokenizer").Tokenizer
    data = train_tokenizer().backend_tokenizer.to_str().encode()
    return str(tokenizer(data, template, {"bos_token": "<s>"}).chat(MESSAGES))


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}\n  {% if loop.first %}{% continue %}{% endif %}\n{{ m.role | upper }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{{ messages | tojson }}{{ messages[1] | tojson(indent=2) }}",
        "{%- if tools %}tools{% endif -%} {{ messages[-1]['content'].split(',')[0].strip() }}",
    ],
    ids=["continue", "generation", "json", "methods"],
)
def test_as_transformers_has_it(template: str) -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = template
    assert chat(template) == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ bos_token }}\n{% if messages", "the chat template cannot be read at line 2: unexpected end"),
        ("{{ raise_exception('System role not supported') }}", "does not take these messages: System role not"),
        ("{{ messages.__class__.__mro__ }}", "does not take these messages: access to attribute"),
    ],
    ids=["syntax", "raised", "unsafe"],
)
def test_what_is_told(template: str, words: str) -> None:
    with pytest.raises(mycc.InputError, match=words):
        chat(template)
