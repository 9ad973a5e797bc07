"""The messages that an application's clients exchange through the group protocol, and the assignment of work.

Pure bytes and dicts: nothing here does input or output, has a thread, or reads a clock. `codes` are Kafka's
error codes, `wire` reads and writes Java's bytes, `layout` is Kafka's layout of both messages, `userdata` is
Millstream's part of them, `balance` assigns the work, `assignor` answers for the leader.
"""
