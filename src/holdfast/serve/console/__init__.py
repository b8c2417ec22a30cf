"""The web console: its built files, and where a server finds them. The source is in `web/`."""
