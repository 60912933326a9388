"""The server by HTTP, in the process: what OpenAI's client and plain ones get is what the model's own calls give."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import mycc
import pytest
from mycc.runtime.serve.app import application

from .folders import TEXTS

httpx = pytest.importorskip("httpx2")
openai = pytest.importorskip("openai")
pytest.importorskip("starlette")

Client = Any
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 12}


def with_client(made: Any, work: Callable[[Client], Any], waiting: int = 256) -> Any:
    """Runs `work` with a client of a server of the package."""

    async def run() -> Any:
        app = application(mycc.load(made.package), "small", waiting)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                return await work(client)

    return asyncio.run(run())


def with_openai(made: Any, work: Callable[[Any], Any]) -> Any:
    """Runs `work` with OpenAI's own client of a server of the package."""

    async def run(client: Client) -> Any:
        return await work(
            openai.AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=client, max_retries=0)
        )

    return with_client(made, run)


def test_completions(made: Any, model: Any) -> None:
    wanted = [model.generate(text, max_new_tokens=12, ignore_eos=True) for text in TEXTS[:2]]
    texts = [stream.text() for stream in wanted]
    asked: dict[str, Any] = {
        "model": "small", "prompt": TEXTS[:2], "temperature": 0, "max_tokens": 12, "extra_body": {"ignore_eos": True},
    }  # fmt: skip

    async def work(client: Any) -> None:
        assert [row.id async for row in client.models.list()] == ["small"]
        whole = await client.completions.create(**asked, logprobs=2)
        assert [choice.text for choice in whole.choices] == texts
        assert [choice.finish_reason for choice in whole.choices] == ["length", "length"]
        assert len(whole.choices[0].logprobs.token_logprobs) == 12
        read = sum(len(stream.prompt_tokens) for stream in wanted)
        counts = (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens)
        assert counts == (read, 24, read + 24)
        stream = await client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        got = [event async for event in stream]
        assert got[-1].usage == whole.usage
        for index in (0, 1):
            own = [choice for event in got for choice in event.choices if choice.index == index]
            assert "".join(choice.text for choice in own) == texts[index]
            assert [choice.finish_reason for choice in own if choice.finish_reason] == ["length"]
        cut = await client.completions.create(**{**asked, "prompt": TEXTS[0]}, stop=texts[0][4:6])
        assert cut.choices[0].text == texts[0][: texts[0].index(texts[0][4:6])]
        assert cut.choices[0].finish_reason == "stop"

    with_openai(made, work)


def test_chats_that_go_on(made: Any, model: Any) -> None:
    messages = [{"role": "user", "content": "the fox"}]
    first = model.chat(messages, max_new_tokens=8, ignore_eos=True).text()
    longer = [*messages, {"role": "assistant", "content": first}, {"role": "user", "content": "the dog"}]
    second = model.chat(longer, max_new_tokens=8, ignore_eos=True).text()
    asked: dict[str, Any] = {
        "model": "small", "temperature": 0, "max_completion_tokens": 8, "extra_body": {"ignore_eos": True},
    }  # fmt: skip

    async def work(client: Any) -> None:
        answer = await client.chat.completions.create(**asked, messages=messages)
        assert (answer.choices[0].message.role, answer.choices[0].message.content) == ("assistant", first)
        parts = [*longer[:-1], {"role": "user", "content": [{"type": "text", "text": "the dog"}]}]
        stream = await client.chat.completions.create(
            **asked, messages=parts, stream=True, logprobs=True, top_logprobs=1
        )
        choices = [event.choices[0] async for event in stream]
        assert choices[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in choices) == second
        assert sum(len(choice.logprobs.content) for choice in choices) == 8

    with_openai(made, work)


def test_what_a_template_gets_beside_the_messages(made: Any, model: Any) -> None:
    """As Qwen 3's enable_thinking: the template of these tests takes whether an answer begins."""
    messages, values = [{"role": "user", "content": "the fox"}], {"add_generation_prompt": False}
    asked = {"max_new_tokens": 8, "ignore_eos": True}
    wanted = model.generate(made.tokenizer.apply_chat_template(messages, tokenize=False), **asked).text()
    assert model.chat(messages, **asked, chat_template_kwargs=values).text() == wanted
    assert model.chat(messages, **asked).text() != wanted

    async def work(client: Client) -> None:
        body = {"messages": messages, **GREEDY, "max_tokens": 8, "chat_template_kwargs": values}
        got = (await client.post("/v1/chat/completions", json=body)).json()
        assert got["choices"][0]["message"]["content"] == wanted

    with_client(made, work)


def test_a_request_that_breaks(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr("mycc.runtime.serve.app.completion_request", broken)

    async def work(client: Client) -> None:
        client._transport.raise_app_exceptions = False  # type: ignore[attr-defined]
        got = await client.post("/v1/completions", json={"prompt": "x"})
        assert (got.status_code, got.json()["error"]["type"]) == (500, "server_error")
        assert "ZeroDivisionError('of the test')" in got.json()["error"]["message"]

    with_client(made, work)


def test_answers_of_a_form(made: Any) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}},
              "required": ["age"], "additionalProperties": False,
              "x-guidance": {"whitespace_pattern": " ?"}}  # fmt: skip
    asked: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 60}

    async def work(client: Any) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
        answer = await client.chat.completions.create(**asked, seed=1, response_format=form)
        assert set(json.loads(answer.choices[0].message.content)) == {"age"}
        assert answer.choices[0].finish_reason == "stop"
        number = await client.chat.completions.create(**asked, extra_body={"regex": "[0-9]{3}"})
        assert number.choices[0].message.content.isdecimal()
        for wrong in ({"type": "xml"}, {"type": "json_schema"}):
            with pytest.raises(openai.BadRequestError, match="response_format"):
                await client.chat.completions.create(**asked, response_format=wrong)
        with pytest.raises(openai.NotFoundError, match="there is no model"):
            await client.chat.completions.create(**{**asked, "model": "other"})

    with_openai(made, work)


def test_many_clients_get_what_each_would_alone(made: Any, model: Any) -> None:
    prompts = [TEXTS[i % 3] * (1 + i % 2) for i in range(9)]
    wanted = [model.generate(p, max_new_tokens=12, temperature=0.8, seed=i).text() for i, p in enumerate(prompts)]

    async def work(client: Client) -> None:
        async def one(i: int) -> str:
            body = {"prompt": prompts[i], "max_tokens": 12, "temperature": 0.8, "seed": i}
            return str((await client.post("/v1/completions", json=body)).json()["choices"][0]["text"])

        assert await asyncio.gather(*(one(i) for i in range(9))) == wanted

    with_client(made, work)


def test_requests_that_are_wrong(made: Any) -> None:
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({}, 400, "prompt has to be"),
        ({"prompt": "x", "model": "other"}, 404, "there is no model 'other'"),
        ({"prompt": [5] * 96}, 400, "the prompt has 96 tokens"),
        ({"prompt": "x", "temperature": -1}, 400, "temperature has to be"),
        ({"prompt": "x", "tempature": 1}, 400, "there is no parameter 'tempature'"),
        ({"prompt": "x", "best_of": 3}, 400, "best_of is not supported"),
        ({"prompt": "x", "n": 0.5}, 400, "n has to be a whole number"),
        ({"prompt": "x", "n": 0}, 400, "n has to be a whole number"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens has to be a whole number from 1, not 0"),
        ({"prompt": "x", "logit_bias": []}, 400, "logit_bias has to be a dict"),
        ({"prompt": "x", "temperature": "1"}, 400, "temperature has to be a number"),
        ({"prompt": "x", "ignore_eos": "false"}, 400, "ignore_eos has to be"),
        ({"prompt": "x", "stream_options": 5}, 400, "stream_options has to be"),
        ({"prompt": "x" * 100_000}, 400, "the text has more than 192 tokens"),
        ({"prompt": "\ud800"}, 400, "half a surrogate pair"),
        ({"prompt": "x", "n": 9, "max_tokens": 90, "ignore_eos": True}, 429, "too many requests"),
    ]

    async def work(client: Client) -> None:
        for body, status, words in wrong:
            got = await client.post("/v1/completions", content=json.dumps(body))
            assert (got.status_code, words in got.json()["error"]["message"]) == (status, True), got.text
        assert (await client.get("/v1/models/small")).json()["id"] == "small"
        for path, status in (("/v1/models/other", 404), ("/v1/none", 404), ("/v1/completions", 405)):
            got = await client.get(path)
            assert (got.status_code, "error" in got.json()) == (status, True)
        assert (await client.post("/v1/completions", content=b"{")).status_code == 400
        wrong_chats: list[tuple[Any, dict[str, Any], str]] = [
            (1, {}, "a message is an object"),
            ({"role": "user", "content": [{"type": "text", "text": 5}]}, {}, "may hold texts only"),
            ({"role": "user", "content": "x"}, {"logprobs": "yes"}, "logprobs of a chat has to be true or false"),
            ({"role": "user", "content": "x"}, {"top_logprobs": 3}, "top_logprobs needs logprobs"),
            ({"role": "user", "content": "x"}, {"chat_template_kwargs": 3}, "chat_template_kwargs has to be a dict"),
        ]
        for message, more, words in wrong_chats:
            got = await client.post("/v1/chat/completions", json={"messages": [message], **more})
            assert (got.status_code, words in got.json()["error"]["message"]) == (400, True), got.text
        for _ in range(50):  # texts that were not let in leave their places
            good = await client.post("/v1/completions", json={"prompt": "the", **GREEDY})
            if good.status_code == 200:
                break
            await asyncio.sleep(0.05)
        assert good.status_code == 200

    with_client(made, work, waiting=1)
