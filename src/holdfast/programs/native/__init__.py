"""The kind `native`: trusted `async def` strategies, run in this process, and their `ctx`."""
