"""Everything that changes in a client, and the only function that changes it."""
