"""The MCP server: strategies inside any MCP host, on durable sessions."""
