"""Metrics, in Kafka Streams' names: snapshots that pure functions make, and the recorder of RocksDB's."""
