"""Runs the first program with a query server that a web page may read; page.html is that page."""

from datetime import timedelta

from first_program import topology

from millstream import KafkaStreams

config = {
    "application.id": "page-views-on-the-web",
    "bootstrap.servers": "localhost:9092",
    "application.server": "localhost:7070",
    "query.server.enabled": True,
    "query.server.cors.origins": "http://localhost:8000",  # where page.html comes from
}

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        print(f"answering at {streams.query_server_url}; press Ctrl-C to stop")
        streams.wait()
