"""A running query: its progress, what it drops, its failures, Real-Time Mode, transactions, its files."""
