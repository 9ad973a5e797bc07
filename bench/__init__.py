"""Measurements: `python -m bench [names…] [--quick]`. Each figure has one to compare it with."""
