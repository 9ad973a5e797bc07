"""An application that tests start as a process of its own: counts the words of a topic until it is stopped.

Prints RUNNING when it is, then one JSON line with the counts for each line that it reads from its input.
"""

from __future__ import annotations

import sys

from answering import answer_lines
from counting import content, counted, lines_of
from spark_start import WITHOUT_CODE, java_options

from millstream import StreamsBuilder


def main(servers: str, application_id: str, topic: str, state_dir: str) -> None:
    builder = StreamsBuilder()
    counted(lines_of(builder, topic))
    config = {
        "application.id": application_id,
        "bootstrap.servers": servers,
        "state.dir": state_dir,
        "num.stream.threads": 2,
        "spark.driver.extraJavaOptions": java_options(),
        **WITHOUT_CODE,
    }
    answer_lines(builder.build(), config, lambda streams, _: content(streams, "counts"))


if __name__ == "__main__":
    main(*sys.argv[1:5])
