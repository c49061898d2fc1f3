"""Names of the parts of a hint."""
