"""A child process that is an MCP server: it answers each method with the line that a file has for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

NONE = '{"jsonrpc":"2.0","id":"@id@","error":{"code":-32601,"message":"no"}}'


def main() -> None:
    lines: dict[str, str] = json.loads(Path(sys.argv[1]).read_text("ascii"))
    for said in sys.stdin:
        message = json.loads(said)
        if "id" in message:
            line = lines.get(message.get("method"), NONE).replace('"@id@"', json.dumps(message["id"]))
            sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
