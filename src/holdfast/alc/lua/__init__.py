"""Lua strategies: the `alc.*` API on durable sessions, run in worker processes that can be killed."""
