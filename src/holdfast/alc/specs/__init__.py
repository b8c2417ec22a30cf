"""Running the specs of Lua packages: finding them, running each in a VM of its own, several at a time."""
