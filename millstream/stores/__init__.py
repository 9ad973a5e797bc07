"""State stores in bytes: memory and RocksDB, their directory, and the updater that fills them."""
