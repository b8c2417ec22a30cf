"""What can run: the kinds of program, and how each is rebuilt from its journal."""
