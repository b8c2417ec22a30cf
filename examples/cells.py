"""A question about a long text, answered in cells of Python. Runs without a key: a script stands in for the model.

python examples/cells.py
"""

from __future__ import annotations

import asyncio

import holdfast
from holdfast.testing import ScriptedProvider

LOG = "\n".join(f"{'ERROR' if n % 997 == 0 else 'ok'} request {n} took {n % 13} ms" for n in range(200_000))
"""Five megabytes that never enter the conversation."""

SCRIPT = [
    "Let me look at it first.\n\n```python\nlines = log.splitlines()\nprint(len(lines), lines[:2])\n```",
    "```python\nerrors = [line for line in lines if line.startswith('ERROR')]\nprint(len(errors), errors[-1])\n```",
    "There were 201 errors in 200,000 requests; the last was request 199,400.",
]


async def main() -> None:
    async with holdfast.Runtime("sqlite:///cells.db", provider=ScriptedProvider(SCRIPT)) as runtime:
        session = await runtime.session("log-1").rlm().bind("log", LOG).open()
        result = await session.turn("How many errors are in the log, and which is the last?").run()
        print(result.text)
        said = sum(len(message.text) for message in result.messages)
        print(f"{len(LOG):,} characters of log, {said:,} characters of conversation")


if __name__ == "__main__":
    asyncio.run(main())
