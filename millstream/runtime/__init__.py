"""The operating model: states, client, threads, supervision. Only wiring.py connects it to the engines."""
