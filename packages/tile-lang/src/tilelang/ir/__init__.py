"""The tile IR over stock tirx: element types, statement forms, text and legality."""
