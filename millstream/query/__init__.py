"""Interactive queries: which store, or which exception of KIP-216."""
