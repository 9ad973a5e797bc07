"""Interactive queries: which store answers, or which exception of KIP-216 is raised."""
