"""Measurements: `python -m bench [names…] [--quick]`. Each figure stands beside what it is compared with."""
