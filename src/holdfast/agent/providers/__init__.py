"""Model providers: the protocol, its implementations, and retries."""
