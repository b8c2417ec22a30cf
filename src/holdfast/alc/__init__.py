"""What exists because of algocline: Lua strategies, the `alc` API, packages, cards, specs, MCP tools, commands."""
