"""The only package that imports a Kafka client: topics and the changelog consumer."""
