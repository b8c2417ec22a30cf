"""The engine: who owns a session, what drives it, and what happens when a process dies."""
