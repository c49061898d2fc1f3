"""Stock TVM passes that this compiler uses, each behind a function of our own: called from here alone."""
