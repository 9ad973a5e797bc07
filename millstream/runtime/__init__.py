"""The operating model: states, client, threads, supervision. Engines are wired in wiring.py alone."""
