"""The pure core: what a session is and what may happen to it. No I/O, no clock, no event loop."""
