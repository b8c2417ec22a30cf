"""Webhooks: what happens in sessions is told to the addresses of others, signed, and at least once."""
