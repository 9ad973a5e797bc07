"""A running query: its tasks, its progress, what it drops, its failures."""
