"""Models of every service that pydantic-ai knows, through its direct layer. Importing this module loads that library.

One attempt a call: the retries of the services' own libraries are switched off, since `calling` retries for all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.providers.faults import MESSAGE_CHARS, ErrorReply, fault_of, says_too_long
from holdfast.agent.providers.provider import (
    Fault,
    ModelReply,
    ModelRequest,
    ProviderError,
    ReasoningDelta,
    Stop,
    StreamItem,
    TextDelta,
)
from holdfast.core.queries import Usage
from holdfast.core.values import Json

try:
    from pydantic_ai import exceptions as errors
    from pydantic_ai import messages as theirs
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.models import Model, ModelRequestParameters, infer_model, parse_model_id
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
except ModuleNotFoundError as missing:  # it comes with an extra
    raise ImportError("this needs the extra 'providers': pip install 'holdfast[providers]'") from missing

from holdfast.agent.providers import pydantic_ai_messages as converting

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

_STOPS: dict[str, Stop] = {"stop": "end", "length": "length", "content_filter": "refusal", "tool_call": "tool_use"}

_NEVER_SAY = frozenset(["ollama", "snowflake", "test", "function"])
"""Services whose streams end without a reason, and the library's models for tests."""

_FAULTS: tuple[tuple[type[Exception], Fault], ...] = (
    (errors.ModelRateLimitError, "rate_limit"),
    (errors.ModelQuotaExceededError, "auth"),  # no waiting helps: the account is to be paid for
    (errors.ModelUnavailableError, "overloaded"),
    (errors.ModelServerError, "overloaded"),
    (errors.ModelTimeoutError, "timeout"),
    (errors.ModelRequestTimeout, "timeout"),
    (errors.ModelConnectionError, "network"),
    (errors.ModelContextWindowExceededError, "context_length"),
    (errors.ModelAuthenticationError, "auth"),
    (errors.ModelRequestRejectedError, "invalid_request"),
    (errors.ContentFilterError, "invalid_request"),
    (errors.UnexpectedModelBehavior, "bad_stream"),
    (errors.UserError, "invalid_request"),
    (TimeoutError, "timeout"),
    (OSError, "network"),
)
"""The class of an error by theirs; the first that fits. Subclasses come before what they are derived from."""


class PydanticAIProvider:
    """A service that pydantic-ai knows: by the name of one of its models, such as `anthropic:claude-…`, or a `Model`.

    By a name the provider is all of that service, and serves whichever of its models a request names. A `Model` object
    is served as it is, and no other. Params of a request are pydantic-ai's model settings.
    """

    def __init__(self, model: str | Model) -> None:
        """Raises `ProviderError` for a model that cannot be had here: a key or a library is missing, say."""
        found = _infer(model)
        named, name = parse_model_id(model) if isinstance(model, str) else (None, found.model_name)
        self.id = named or found.system
        self.model = name
        """The model that requests without a name are for."""
        self._by_name = {name: found}
        self._is_service = named is not None

    def __repr__(self) -> str:
        return f"PydanticAIProvider({self.id!r}, model={self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Call the model once; see `Provider.stream`."""
        model = self._model(request.model or self.model)
        parameters = ModelRequestParameters(
            function_tools=[
                ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
                for tool in request.tools
            ]
        )
        try:
            messages = converting.to_theirs(request, model.system)
            async with model_request_stream(
                model,
                messages,
                model_settings=_settings(request, model),
                model_request_parameters=parameters,
            ) as response:
                async for event in response:
                    delta = _delta(event)
                    if delta is not None:
                        yield delta
                reply = self._reply(response.get(), model)
        except ProviderError:
            raise
        except Exception as error:
            raise self._error(error) from error
        yield reply

    def _model(self, name: str) -> Model:
        if name not in self._by_name:
            if not self._is_service:
                told = f"{self.id}: this provider is for the model '{self.model}' only, and '{name}' was asked for"
                raise ProviderError(told, fault="invalid_request")
            self._by_name[name] = _infer(f"{self.id}:{name}")
        return self._by_name[name]

    def _reply(self, response: theirs.ModelResponse, model: Model) -> ModelReply:
        is_broken = response.state in ("incomplete", "interrupted") or response.finish_reason == "error"
        if is_broken or not _is_ended(response, model):
            raise ProviderError(f"{self.id}: the answer broke off before its end", fault="bad_stream")
        content = converting.from_theirs(response)
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        is_plain = response.finish_reason is None and not (response.provider_details or {}).get("finish_reason")
        stop = "end" if is_plain else _STOPS.get(response.finish_reason or "", "other")
        if response.state == "suspended":
            stop = "other"
        if calls and stop in ("end", "other"):
            stop = "tool_use"
        return ModelReply(content=content, stop=stop, usage=_usage(response.usage), model=response.model_name or "")

    def _error(self, error: Exception) -> ProviderError:
        status = error.status_code if isinstance(error, errors.ModelHTTPError) else None
        fault = next((fault for kind, fault in _FAULTS if isinstance(error, kind)), None)
        if fault is None:
            fault = "other" if status is None else fault_of(status, ErrorReply(str(error)))
        if fault == "invalid_request" and says_too_long(str(error)):
            fault = "context_length"  # not every service has words for it that the library knows
        told = f"{self.id}: {str(error)[:MESSAGE_CHARS] or type(error).__name__}"
        retry_after_s = error.retry_after if isinstance(error, errors.ModelAPIError) else None
        return ProviderError(told, fault=fault, status=status, retry_after_s=retry_after_s)


def _infer(model: str | Model) -> Model:
    try:
        return infer_model(model)
    except (ImportError, errors.UserError, ValueError) as error:
        raise ProviderError(f"{model}: {error}", fault="other") from error


def _is_ended(response: theirs.ModelResponse, model: Model) -> bool:
    """Whether the service said that it was done, and did not just fall silent.

    The library takes either for the end. What the service itself said is in the details, with most; where it is not,
    the library's own word counts, except for the one kind of model for which it makes that up.
    """
    if response.provider_name is None or response.provider_name in _NEVER_SAY:
        return True
    details = response.provider_details or {}
    is_made_up = any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__)
    return bool(details.get("finish_reason") or details.get("refusal") or (response.finish_reason and not is_made_up))


def _settings(request: ModelRequest, model: Model) -> ModelSettings:
    settings: dict[str, Json] = dict(request.params)
    ours = {"max_retries": 0, "extra_headers": {"Idempotency-Key": request.key} if request.key else {}}
    for name, value in ours.items():
        if name not in model.unsupported_settings:
            settings[name] = {**value, **settings.get(name, {})} if isinstance(value, dict) else value
    return cast(ModelSettings, settings)


def _delta(event: theirs.ModelResponseStreamEvent) -> TextDelta | ReasoningDelta | None:
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
            return TextDelta(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
            return ReasoningDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=str(text))) if text:
            return ReasoningDelta(text)
        case _:
            return None


def _usage(given: RequestUsage) -> Usage | None:
    if given.unmeasured_requests or not given.has_values():
        return None
    return Usage(
        prompt_tokens=given.input_tokens,
        completion_tokens=given.output_tokens,
        cache_read_tokens=given.cache_read_tokens or None,
        cache_write_tokens=given.cache_write_tokens or None,
        reasoning_tokens=given.output_reasoning_tokens or None,
    )
