"""Reports of evaluations: figures, comparisons, a page, and files for other tools."""
