"""Whom the progress of a pipeline belongs to: claims, identities, positions (designs D5 and D7)."""
