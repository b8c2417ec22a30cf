"""algocline's tools, by their names, with their parameters and results, for the MCP server."""
