"""Strategies: the bundled library, what lists, checks and rehearses them, and what begins a new one."""
