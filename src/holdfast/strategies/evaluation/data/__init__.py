"""The data of evaluations: cases, datasets, and the file formats that they are read from."""
