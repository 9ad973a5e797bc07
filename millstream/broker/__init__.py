"""A real Kafka broker as a child process."""

from millstream.broker.embedded import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
