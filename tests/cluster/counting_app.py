"""An application that tests start as a process of its own: counts the words of a topic until it is stopped.

Prints RUNNING when it is, then one JSON line with the counts for each line that it reads from its input.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

from pyspark.sql import functions as F
from spark_start import WITHOUT_CODE, java_options

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
)


def main(servers: str, application_id: str, topic: str, state_dir: str) -> None:
    builder = StreamsBuilder()
    (
        builder.stream(topic, Consumed.with_(Serdes.string(), Serdes.string()))
        .flat_map_values(lambda line: F.split(line, " "))
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts"))
    )
    config = {
        "application.id": application_id,
        "bootstrap.servers": servers,
        "state.dir": state_dir,
        "num.stream.threads": 2,
        "spark.driver.extraJavaOptions": java_options(),
        **WITHOUT_CODE,
    }
    with KafkaStreams(builder.build(), config) as streams:
        streams.wait_until_running(timedelta(seconds=90))
        print("RUNNING", flush=True)
        store = streams.store(
            StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
        )
        for _ in sys.stdin:
            with store.all() as entries:
                print(json.dumps(dict(entries)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
