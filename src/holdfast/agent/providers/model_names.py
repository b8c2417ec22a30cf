"""Finds the provider of a model name such as `openai:gpt-5` or `http://localhost:8000/v1#qwen`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

import msgspec

from holdfast.agent.errors import ProviderUnavailableError
from holdfast.agent.providers.provider import Provider, ProviderError
from holdfast.core.errors import InvalidValueError

if TYPE_CHECKING:
    from holdfast.agent.providers.openai import OpenAIProvider

URL_ID = "openai-compatible"
"""The id of a provider that is named by its URL. Sessions record it, so it does not contain the URL."""

POSSIBLE = (
    "'openai:MODEL' (OPENAI_API_KEY, OPENAI_BASE_URL), 'http://HOST:PORT/v1#MODEL' for any server with OpenAI's"
    " chat-completions API, 'openrouter:', 'groq:', 'deepseek:' or 'ollama:MODEL', or"
    " 'anthropic:MODEL', 'google:MODEL' or any other 'SERVICE:MODEL' that pydantic-ai knows"
)
"""The possible names, in one sentence."""


class _Service(msgspec.Struct, frozen=True):
    base_url: str
    needs_key: bool = True


_SERVICES = {
    "openai": _Service("https://api.openai.com/v1"),
    "openrouter": _Service("https://openrouter.ai/api/v1"),
    "groq": _Service("https://api.groq.com/openai/v1"),
    "deepseek": _Service("https://api.deepseek.com/v1"),
    "ollama": _Service("http://localhost:11434/v1", needs_key=False),
}
"""Services that need no library of their own. `NAME_BASE_URL` and `NAME_API_KEY` in the environment are theirs."""


def find_provider(
    text: str, env: Mapping[str, str] | None = None, *, base_url: str | None = None
) -> tuple[Provider, str]:
    """The provider and the model that a text names. Raises `ProviderUnavailableError`, which lists the possible names.

    With `base_url`, that server is used: as the named service, if the text names one that needs no library; else as an
    unnamed server, and the whole text is the model.

    A key is only sent to its own service: `OPENAI_API_KEY` goes to another URL only if `OPENAI_BASE_URL` names it.
    """
    env = os.environ if env is None else env
    if base_url is not None:
        return _at(base_url, text, env)
    if text.startswith(("http://", "https://")):
        return _by_url(text, env)
    service, colon, model = text.partition(":")
    if service in _SERVICES and model:
        return _by_service(service, model, env), model
    if (not colon or not model) and text != "test":
        raise ProviderUnavailableError(text, f"it does not name a service and a model; use {POSSIBLE}")
    return _by_library(text)


def _at(base_url: str, text: str, env: Mapping[str, str]) -> tuple[Provider, str]:
    if text.startswith(("http://", "https://")):
        raise ProviderUnavailableError(text, f"it is a URL itself; omit the other one, '{base_url}'")
    service, _, model = text.partition(":")
    if service in _SERVICES and model:
        return _by_service(service, model, {**env, f"{service.upper()}_BASE_URL": base_url}), model
    return _by_url(f"{base_url}#{text}", env)


def _by_url(text: str, env: Mapping[str, str]) -> tuple[Provider, str]:
    url, model = urldefrag(text)
    if not model:
        raise ProviderUnavailableError(text, f"add the model after a '#', as in '{text.rstrip('/')}#MODEL'")
    is_own = url.rstrip("/") in (env.get("OPENAI_BASE_URL", "").rstrip("/"), _SERVICES["openai"].base_url)
    return _compatible(text, url, env.get("OPENAI_API_KEY") if is_own else None, URL_ID), model


def _by_service(name: str, model: str, env: Mapping[str, str]) -> Provider:
    service = _SERVICES[name]
    url, key = env.get(f"{name.upper()}_BASE_URL"), env.get(f"{name.upper()}_API_KEY")
    if service.needs_key and not key and not url:
        why = f"set {name.upper()}_API_KEY, or {name.upper()}_BASE_URL for a server that needs no key"
        raise ProviderUnavailableError(f"{name}:{model}", why)
    return _compatible(f"{name}:{model}", url or service.base_url, key, name)


def _compatible(text: str, url: str, key: str | None, id: str) -> OpenAIProvider:
    try:
        from holdfast.agent.providers.openai import OpenAIProvider

        return OpenAIProvider(url, key, id=id)
    except (ImportError, InvalidValueError) as error:
        raise ProviderUnavailableError(text, str(error)) from error


def _by_library(text: str) -> tuple[Provider, str]:
    try:
        from holdfast.agent.providers.pydantic_ai import PydanticAIProvider

        provider = PydanticAIProvider(text)
    except ImportError as error:
        raise ProviderUnavailableError(text, str(error)) from error
    except ProviderError as error:
        raise ProviderUnavailableError(text, f"{error}; use {POSSIBLE}") from error
    return provider, provider.model
