"""Tools of MCP servers: `McpServer` connects to one and offers what it has."""
