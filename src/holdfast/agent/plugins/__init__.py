"""Plugins: what a session can be given beside its own instructions and tools, and the two plugins that ship."""
