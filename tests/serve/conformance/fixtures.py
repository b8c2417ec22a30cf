"""Our MCP server with the tools, resources and prompts that the conformance suite asks for by fixed names.

Everything goes through the server's own classes, middleware and transport; what is not a fixture is ours. As a program
it serves HTTP on a free port of loopback, and prints the address.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning

from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.serve import gate
from holdfast.serve.listener import HttpSettings
from holdfast.serve.mcp.http import serve_http
from holdfast.serve.mcp.server import McpServer, tools_of
from holdfast.serve.mcp.tools import ToolCatalog
from tests.serve.conformance.tools import PNG, TOOLS, form

KEYS = [b"k" * 32]
ServerContext: TypeAlias = ServerRequestContext[Any, Any]

RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
}
TEMPLATE = "test://template/{id}/data"


def _prompt(name: str, *arguments: str) -> types.Prompt:
    described = [types.PromptArgument(name=each, description=each, required=True) for each in arguments]
    return types.Prompt(name=name, description=f"For the conformance suite: {name}.", arguments=described)


PROMPTS = [
    _prompt("test_simple_prompt"),
    _prompt("test_prompt_with_arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "resourceUri"),
    _prompt("test_prompt_with_image"),
    _prompt("test_input_required_result_prompt"),
]


def fixture_server(holdfast: Holdfast) -> McpServer:
    """Our server, with all its tools, and the fixtures."""
    served = McpServer(holdfast, family="all", keys=KEYS)
    served.tools = ToolCatalog([*tools_of("all"), *TOOLS])
    _add_resources(served)
    _add_prompts(served)
    return served


def _ours(served: McpServer, method: str) -> Callable[[ServerContext, Any], Awaitable[Any]]:
    """The server's own handler of a method."""
    entry = served.server.get_request_handler(method)
    assert entry is not None, method
    return entry.handler


def _add_resources(served: McpServer) -> None:
    own_list = _ours(served, "resources/list")
    own_templates = _ours(served, "resources/templates/list")
    own_read = _ours(served, "resources/read")

    async def list_resources(context: ServerContext, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        added = [
            types.Resource(name=uri, uri=uri, description="For the conformance suite.", mime_type=each.mime_type)
            for uri, each in RESOURCES.items()
        ]
        given: types.ListResourcesResult = await own_list(context, params)
        return given.model_copy(update={"resources": [*given.resources, *added]})

    async def list_templates(
        context: ServerContext, params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        added = types.ResourceTemplate(name="test-template", uri_template=TEMPLATE, description="For the suite.")
        given: types.ListResourceTemplatesResult = await own_templates(context, params)
        return given.model_copy(update={"resource_templates": [*given.resource_templates, added]})

    async def read(context: ServerContext, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri in RESOURCES:
            return types.ReadResourceResult(contents=[RESOURCES[uri]])
        if uri.startswith("test://template/") and uri.endswith("/data"):
            asked = uri.removeprefix("test://template/").removesuffix("/data")
            text = f'{{"id":"{asked}","templateTest":true,"data":"Data for ID: {asked}"}}'
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
            return types.ReadResourceResult(contents=[found])
        return await own_read(context, params)

    served.server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    served.server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    served.server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)


def _add_prompts(served: McpServer) -> None:
    own_list = _ours(served, "prompts/list")
    own_get = _ours(served, "prompts/get")
    own_completion = _ours(served, "completion/complete")

    async def list_prompts(context: ServerContext, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        given: types.ListPromptsResult = await own_list(context, params)
        return given.model_copy(update={"prompts": [*given.prompts, *PROMPTS]})

    async def get(context: ServerContext, params: types.GetPromptRequestParams) -> Any:
        found = _fixture_prompt(params)
        return await own_get(context, params) if found is None else found

    async def complete(context: ServerContext, params: types.CompleteRequestParams) -> Any:
        if isinstance(params.ref, types.PromptReference) and params.ref.name == "test_prompt_with_arguments":
            return types.CompleteResult(completion=types.Completion(values=["test one", "test two"]))
        return await own_completion(context, params)

    served.server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    served.server.add_request_handler("prompts/get", types.GetPromptRequestParams, get)
    served.server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


def _fixture_prompt(params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult | None:
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _said(types.TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"
            return _said(types.TextContent(text=text))
        case "test_prompt_with_embedded_resource":
            uri = arguments["resourceUri"]
            inner = types.TextResourceContents(uri=uri, mime_type="text/plain", text="Embedded resource content.")
            return _said(types.EmbeddedResource(resource=inner), types.TextContent(text="Please process it."))
        case "test_prompt_with_image":
            image = types.ImageContent(data=PNG, mime_type="image/png")
            return _said(image, types.TextContent(text="Please analyze the image above."))
        case "test_input_required_result_prompt":
            match (params.input_responses or {}).get("user_context"):
                case types.ElicitResult(action="accept", content={"context": context}):
                    return _said(types.TextContent(text=f"Context: {context}"))
                case _:
                    asked = form("What context should the prompt use?", "context")
                    return types.InputRequiredResult(input_requests={"user_context": asked})
        case _:
            return None


def _said(*content: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in content])


async def main() -> None:
    # The suite still tests what the newest revision has deprecated: sampling, logging.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    gate._check_token = lambda *_: None  # the suite sends none
    settings = HttpSettings(port=0, token="the-suite-has-no-token")
    async with open_holdfast("memory:") as holdfast:
        await serve_http(fixture_server(holdfast), settings, lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main())
