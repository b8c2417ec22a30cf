"""Envelopes: whole transcripts under a session id, in the JSON that fluers reads and writes."""
