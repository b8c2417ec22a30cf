"""Taking over what algocline has left: its directory, and the files of older projects. It is only read."""
