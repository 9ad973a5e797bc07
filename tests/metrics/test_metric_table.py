"""The table of metrics, held to those of Kafka Streams itself."""

from __future__ import annotations

from collections import Counter

from snapshots.metric_names import kafka_metrics

from millstream.metrics.metrics_table import DEFINITIONS, OWN_GROUPS, SENSORS
from millstream.metrics.missing import MISSING

KAFKA = {(each.group, each.name): each for each in kafka_metrics()}
TAGS = {(each.group, each.name, frozenset(each.tags)) for each in kafka_metrics()}
TOLD = {
    (each.group, each.name, each.description.partition(". Note: For topic")[0]) for each in kafka_metrics()
}


def test_what_has_a_group_of_kafkas_has_a_name_of_kafkas() -> None:
    """It has Kafka's tags and description as well, or the table says what differs."""
    wrong = []
    for each in DEFINITIONS:
        if each.group in OWN_GROUPS:
            assert (each.group, each.name) not in KAFKA
            continue
        known = KAFKA.get((each.group, each.name))
        if known is None:
            wrong.append(f"{each.group} {each.name}: Kafka Streams has no such metric")
        elif (each.group, each.name, frozenset(each.tags)) not in TAGS and "task-id" not in each.differs:
            wrong.append(f"{each.group} {each.name}: its tags are {known.tags}, and not {each.tags}")
        elif (each.group, each.name, each.description) not in TOLD:
            wrong.append(
                f"{each.group} {each.name}: Kafka says '{known.description}', and not '{each.description}'"
            )
    assert not wrong, "\n".join(wrong)


def test_what_kafka_has_is_in_the_table_or_missing_for_a_reason() -> None:
    """One of both: a reason for what is there after all is as wrong as nothing at all."""
    ours = {(each.group, each.name) for each in DEFINITIONS}
    wrong = []
    for group, name in KAFKA:
        reasons = [each for each in MISSING if each.covers(group, name)]
        if ((group, name) in ours) + len(reasons) != 1:
            wrong.append(f"{group} {name}: {'there' if (group, name) in ours else 'not there'}, {reasons}")
    assert not wrong, "\n".join(wrong)


def test_no_reason_is_for_nothing() -> None:
    """Each of its patterns is that of a metric that Kafka has."""
    idle = [
        (each.group, pattern)
        for each in MISSING
        for pattern in each.names
        if not any(each._replace(names=(pattern,)).covers(*name) for name in KAFKA)
    ]
    assert idle == []


def test_a_sensors_metrics_have_the_same_tags_and_no_metric_is_there_twice() -> None:
    """Each says what it is, in which unit, and how it comes from its sensor."""
    for name, metrics in SENSORS.items():
        assert len({each.tags for each in metrics}) == 1, name
        assert all(each.measure for each in metrics), name
    assert all(each.description for each in DEFINITIONS)
    assert set(Counter((each.group, each.name, each.tags) for each in DEFINITIONS).values()) == {1}
