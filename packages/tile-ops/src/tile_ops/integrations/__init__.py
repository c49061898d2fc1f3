"""Operators inside other libraries, through the libraries' own extension points. Each file needs its library."""
