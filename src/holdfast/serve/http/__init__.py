"""The HTTP API: sessions, agents and their events for programs that are not Python, and for the console."""
