"""RocksDB's properties, available without its statistics: a store's figures, by Kafka's names.

Source: KIP-607; org.apache.kafka.streams.state.internals.metrics.RocksDBMetrics.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PROPERTIES", "unit_of"]

PROPERTIES: Mapping[str, str] = {
    "num-immutable-mem-table": "Number of immutable memtables that have not yet been flushed",
    "cur-size-active-mem-table": "Approximate size of active memtable in bytes",
    "cur-size-all-mem-tables": "Approximate size of active and unflushed immutable memtables in bytes",
    "size-all-mem-tables": "Approximate size of active, unflushed immutable, and pinned immutable memtables "
    "in bytes",
    "num-entries-active-mem-table": "Total number of entries in the active memtable",
    "num-entries-imm-mem-tables": "Total number of entries in the unflushed immutable memtables",
    "num-deletes-active-mem-table": "Total number of delete entries in the active memtable",
    "num-deletes-imm-mem-tables": "Total number of delete entries in the unflushed immutable memtables",
    "mem-table-flush-pending": "Reports 1 if a memtable flush is pending, otherwise it reports 0",
    "num-running-flushes": "Number of currently running flushes",
    "compaction-pending": "Reports 1 if at least one compaction is pending, otherwise it reports 0",
    "num-running-compactions": "Number of currently running compactions",
    "estimate-pending-compaction-bytes": "Estimated total number of bytes a compaction needs to rewrite on "
    "disk to get all levels down to under target size",
    "total-sst-files-size": "Total size in bytes of all SST files",
    "live-sst-files-size": "Total size in bytes of all SST files that belong to the latest LSM tree",
    "num-live-versions": "Number of live versions of the LSM tree",
    "block-cache-capacity": "Capacity of the block cache in bytes",
    "block-cache-usage": "Memory size of the entries residing in block cache in bytes",
    "block-cache-pinned-usage": "Memory size for the entries being pinned in the block cache in bytes",
    "estimate-num-keys": "Estimated number of keys in the active and unflushed immutable memtables and "
    "storage",
    "estimate-table-readers-mem": "Estimated memory in bytes used for reading SST tables, excluding memory "
    "used in block cache",
    "background-errors": "Total number of background errors",
}
"""Kafka's names of the figures, and its descriptions; RocksDB's own names have the prefix `rocksdb.`."""


def unit_of(name: str) -> str:
    """The unit of one of these figures."""
    in_bytes = ("size", "bytes", "usage", "capacity", "mem")
    if name.startswith("num-") or name.endswith("-pending"):
        return "number"
    return "bytes" if any(word in name.split("-") for word in in_bytes) else "number"
