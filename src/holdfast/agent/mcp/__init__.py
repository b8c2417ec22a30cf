"""Tools of MCP servers: `McpClient` connects to one and offers what it has."""
