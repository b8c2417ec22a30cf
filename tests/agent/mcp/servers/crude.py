"""Servers that hardly are: `python crude.py WHAT`. Written without any library, because none would do such things.

`old` speaks the protocol of 2025 and tells of changes by itself; the others hang, prattle, or will not end.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

what = sys.argv[1]
tools = ["look", "listed", "shout"]
listings = 0


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def told(text: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(text)}]}


def called(name: str) -> dict[str, Any]:
    if name == "look":
        tools.append(f"found_{len(tools) - 2}")
    if name in ("look", "shout"):
        for _ in range(500):  # a storm of news, of one change or none
            say({"method": "notifications/tools/list_changed"})
    return told(f"there were {listings} listings" if name == "listed" else f"there are {len(tools)}")


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    global listings  # noqa: PLW0603
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "old", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            listings += 1
            listed: list[Any] = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
            malformed = [{"name": "odd", "inputSchema": "none"}, {"inputSchema": {"type": "object"}}, 7]
            return {"tools": listed + (malformed if what == "malformed" else [])}
        case "tools/call":
            return called(params["name"])
    return None


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if what == "prattling":
            print("Listening on standard input …", flush=True)
            print('{"level": "info"}', flush=True)
        result = answered(message["method"], message.get("params") or {})
        if result is None:
            say({"id": message["id"], "error": {"code": -32601, "message": "there is no such method"}})
        else:
            say({"id": message["id"], "result": result})


match what:
    case "old" | "prattling" | "malformed":
        serve()
    case "broken":
        print("Traceback (most recent call last):", file=sys.stderr)
        print(f"KeyError: no such key: {sys.argv[2]}", file=sys.stderr)
        sys.exit(7)
    case "garbage":
        while True:
            print("hello, is anybody there?", flush=True)
            time.sleep(0.01)
    case "silent":
        time.sleep(600)
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve()
        time.sleep(600)
