"""From a user's Python function to tile IR: rewrite its text, run it, record what it does."""
