"""What the clients of one application tell each other through the group protocol, and who does what.

Pure bytes and dicts: nothing here does input or output, has a thread, or asks for the time. `codes` are
Kafka's error codes, `wire` reads and writes Java's bytes, `layout` is Kafka's layout of both messages,
`userdata` is what Millstream says in them, `balance` decides who does what, `assignor` answers for the
leader.
"""
