"""Models by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.agent.errors import ProviderUnavailableError
from holdfast.agent.providers.model_names import find_provider
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.testing.model_server import ModelServer
from tests.agent.providers.helpers import ask, hear
from tests.tables import each_row

URL = "http://127.0.0.1:9/v1"


def compatible(text: str, **env: str) -> tuple[OpenAIProvider, str]:
    provider, model = find_provider(text, env)
    assert isinstance(provider, OpenAIProvider)
    return provider, model


@each_row(
    ("text", "env", "url", "model"),
    [
        ("openai:gpt-5", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "gpt-5"),
        ("openai:ft:gpt:x", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": URL}, URL, "ft:gpt:x"),
        ("openai:gpt-5", {"OPENAI_BASE_URL": URL + "/"}, URL, "gpt-5"),
        ("openrouter:a/b:free", {"OPENROUTER_API_KEY": "k"}, "https://openrouter.ai/api/v1", "a/b:free"),
        ("groq:llama", {"GROQ_API_KEY": "k"}, "https://api.groq.com/openai/v1", "llama"),
        ("deepseek:chat", {"DEEPSEEK_API_KEY": "k"}, "https://api.deepseek.com/v1", "chat"),
        ("ollama:qwen3:8b", {}, "http://localhost:11434/v1", "qwen3:8b"),
        ("ollama:qwen3", {"OLLAMA_BASE_URL": URL}, URL, "qwen3"),
    ],
)
def test_services_that_speak_the_form_need_no_library(text: str, env: dict[str, str], url: str, model: str) -> None:
    provider, found = compatible(text, **env)
    assert (provider.id, provider.base_url, found) == (text.partition(":")[0], url, model)


@each_row("text", [f"{URL}#qwen/3:8b", f"{URL}/#qwen/3:8b"])
def test_any_server_goes_by_its_url(text: str) -> None:
    provider, model = compatible(text)
    assert (provider.id, provider.base_url, model) == ("openai-compatible", URL, "qwen/3:8b")


async def test_the_key_goes_to_its_own_service_only() -> None:
    async with ModelServer(["a", "b", "c"]) as server:
        environments = [
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url},
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://elsewhere.example/v1"},
            {"OPENAI_API_KEY": "k"},
        ]
        for env in environments:
            provider, model = compatible(f"{server.url}#m", **env)
            await hear(provider, ask(model=model))
            await provider.aclose()
    assert [received.headers.get("authorization") for received in server.received] == ["Bearer k", None, None]


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    provider, _ = find_provider("openai:gpt-5")
    assert isinstance(provider, OpenAIProvider)
    assert provider.base_url == URL


def test_a_library_knows_the_others() -> None:
    provider, model = find_provider("test", {})
    assert (provider.id, model) == ("test", "test")


@each_row(
    ("text", "words"),
    [
        ("openai:gpt-5", "set OPENAI_API_KEY, or OPENAI_BASE_URL"),
        ("gpt-5", "use 'openai:MODEL'"),
        ("openai:", "use 'openai:MODEL'"),
        ("", "use 'openai:MODEL'"),
        (URL, f"as in '{URL}#MODEL'"),
        ("http://#m", "not an http or https URL"),
        ("nobody:x", "Unknown model: nobody:x.*use 'openai:MODEL'"),
    ],
)
def test_what_cannot_be_had_says_what_can(text: str, words: str) -> None:
    with pytest.raises(ProviderUnavailableError, match=words) as caught:
        find_provider(text, {})
    assert str(caught.value).startswith(f"provider '{text}' cannot be used here")


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
from holdfast.agent.providers.model_names import find_provider
try:
    find_provider({text!r}, {{"OPENAI_API_KEY": "k"}})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.executes
@each_row(
    ("text", "missing", "words"),
    [
        ("openai:gpt-5", ["httpx2"], "pip install 'holdfast[providers]'"),
        ("test", ["pydantic_ai"], "pip install 'holdfast[providers]'"),
        ("anthropic:claude-x", ["anthropic"], 'pip install "pydantic-ai-slim[anthropic]"'),
    ],
)
def test_a_missing_library_is_named_with_how_to_get_it(text: str, missing: list[str], words: str) -> None:
    code = BLOCKED.format(missing=missing, text=text)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"ProviderUnavailableError provider '{text}' cannot be used here")
    assert words in told


@pytest.mark.executes
def test_finding_loads_nothing_that_is_not_used() -> None:
    code = "import sys, holdfast.agent.providers.model_names; print({'httpx2', 'pydantic_ai'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "set()"
