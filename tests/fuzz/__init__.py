"""Whatever Holdfast reads from outside, changed, cut and swapped: only declared errors, nothing lost, no hang."""
