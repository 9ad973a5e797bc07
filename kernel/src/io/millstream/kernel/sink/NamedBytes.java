package io.millstream.kernel.sink;

import org.apache.kafka.common.header.Header;

/** A header of a record. */
record NamedBytes(String key, byte[] value) implements Header {}
