"""An application that tests start as a process of its own: a table of files joined, and the result in files.

Prints RUNNING when it is, and for each line that it reads from its input how many rows of the table changed.
"""

from __future__ import annotations

import sys

from answering import answer_lines
from counting import lines_of
from spark_start import WITHOUT_CODE, java_options

from millstream import StreamsBuilder


def main(servers: str, application_id: str, topic: str, directory: str) -> None:
    builder = StreamsBuilder()
    prices = builder.from_dataframe(
        lambda spark: spark.read.json(f"{directory}/prices", "item string, price bigint"),
        "item",
        named="prices",
    )
    (
        lines_of(builder, topic)
        .join(prices, lambda number, row: {"number": number, "price": row.price})
        .to_spark(
            lambda df: (
                df.select("partition", "offset", "value.*")
                .writeStream.format("parquet")
                .option("path", f"{directory}/priced")
            ),
            named="priced",
        )
    )
    config = {
        "application.id": application_id,
        "bootstrap.servers": servers,
        "state.dir": f"{directory}/state",
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": 2,
        "spark.driver.extraJavaOptions": java_options(),
        **WITHOUT_CODE,
    }
    answer_lines(builder.build(), config, lambda streams, _: streams.refresh_table(prices))


if __name__ == "__main__":
    main(*sys.argv[1:5])
