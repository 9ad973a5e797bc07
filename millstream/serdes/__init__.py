"""How keys and values are written as bytes, and read back."""
