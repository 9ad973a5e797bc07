"""Metrics under Kafka Streams' names: snapshots made by pure functions, and the recorder of RocksDB's."""
