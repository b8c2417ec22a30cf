"""What is served to others: the MCP server."""
