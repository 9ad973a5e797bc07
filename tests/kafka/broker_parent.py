"""Starts a broker and prints its process and directory; at Ctrl-C, prints its state and closes it."""

from __future__ import annotations

import json

from millstream.broker import EmbeddedKafka
from millstream.polling import looks


def main() -> None:
    broker = EmbeddedKafka().start()
    try:  # the reader of the line may press Ctrl-C at once
        print(json.dumps({"pid": broker.pid, "data": str(broker.data_dir)}), flush=True)
        for _ in looks(110, every_s=0.1):  # signal.pause() would miss one that comes just before it
            pass
    except KeyboardInterrupt:
        print(json.dumps({"running": broker.is_running, "topics": sorted(broker.topics())}), flush=True)
        broker.close()


if __name__ == "__main__":
    main()
