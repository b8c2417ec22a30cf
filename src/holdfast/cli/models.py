"""Models as they are named on a command line, and what to do when a model fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.agent.providers.provider import Provider

F = TypeVar("F", bound=Callable[..., Any])

MODEL_VARIABLE = "HOLDFAST_MODEL"
"""The environment variable that names the model if no option does."""

_HINTS = {
    "auth": "set the key of the service (such as OPENAI_API_KEY) to a valid one; a server at another URL is sent"
    " OPENAI_API_KEY only if OPENAI_BASE_URL is that URL",
    "network": "check that the server is running, and that its URL is right (--base-url)",
    "timeout": "try again, or use another model",
    "rate_limit": "try again later, or use another model",
    "overloaded": "try again later, or use another model",
    "context_length": "use a model with a larger context window, or begin a new session",
    "invalid_request": "check that the service has this model, and that the URL is right",
}
"""What to do about a failed call, by the class of its error."""


def model_options(about: str) -> Callable[[F], F]:
    """Add `--model` and `--base-url`, with a description of what the model is for."""

    def add(function: F) -> F:
        model = click.option("--model", metavar="SERVICE:MODEL", help=about)
        base_url = click.option(
            "--base-url",
            metavar="URL",
            help="A server that speaks OpenAI's chat-completions protocol; --model is then the name of a model there.",
        )
        return model(base_url(function))

    return add


HOST = "host"
"""The `--model` of a strategy whose questions are answered by whoever runs it, although a model is set."""


def model_of_strategy(given: str | None) -> str | None:
    """The model that answers a strategy: the one that is named, else the default, or None for nobody."""
    named = given or default_model()
    return None if named == HOST else named


def default_model() -> str | None:
    """The model of the environment, or else of the project's file; None if neither names one."""
    from holdfast.cli.config import config_text

    return os.environ.get(MODEL_VARIABLE) or config_text("model", '"openai:gpt-5"')


def hint_for(fault: str | None) -> str:
    """What to do about a call that failed with an error of this class, or an empty text."""
    return _HINTS.get(fault or "", "")


def find_model(model: str, base_url: str | None) -> tuple[Provider, str]:
    """The provider and the model of that name."""
    from holdfast.agent.providers.model_names import find_provider

    return find_provider(model, base_url=base_url)


async def close_provider(provider: Provider) -> None:
    """Close its connections, if it has any."""
    if (aclose := getattr(provider, "aclose", None)) is not None:
        await aclose()
