"""The loops that own work: stream threads, the global thread, and what they do about failures."""
