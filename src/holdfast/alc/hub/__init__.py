"""The hub: what packages and cards there are beyond those installed, and what a collection publishes of itself."""
