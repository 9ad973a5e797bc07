"""Spark's process: its settings, its start, its class-data archive, the kernel in it, its executors."""
