"""Which settings Spark runs with: ours, unless the user told it something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkAttributeError

from millstream.errors import SetupException
from millstream.spark.jvm.session import SharedSession
from millstream.spark.jvm.spark_settings import (
    SQL_DEFAULTS,
    has_connector,
    java_options,
    launch_settings,
    quiet_options,
    settings_in_arguments,
    sql_settings,
)


def test_the_users_word_goes_before_our_defaults_and_the_configuration_before_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For what Spark starts with. There are more slots than tasks, whatever the number of cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert launch_settings("app", {}, {}, our_workers=True) == {
        "spark.master": "local[1024]",
        "spark.default.parallelism": "3",
        "spark.app.name": "app",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",
        "spark.python.daemon.module": "millstream.spark.worker.daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.sql.artifact.isolation.enabled": "false",
    }
    told = {"spark.master": "yarn", "spark.ui.enabled": "true", "spark.x": "1", "spark.y": "1"}
    chosen = launch_settings("app", {"spark.y": "2"}, told, our_workers=True)
    assert chosen.items() >= {**told, "spark.y": "2", "spark.app.name": "app"}.items()
    # Executors elsewhere have to reach the driver, and have no package of ours.
    assert not chosen.keys() & {
        "spark.driver.host",
        "spark.authenticate",
        "spark.python.daemon.module",
        "spark.ui.retainedJobs",
        "spark.default.parallelism",
    }
    # Spark makes a secret for threads of its own process, and none for executors in others.
    assert "spark.authenticate" not in launch_settings(
        "app", {"spark.master": "local-cluster[1,1,1024]"}, {}, our_workers=True
    )
    told = {"spark.authenticate": "false"}
    assert launch_settings("app", {}, told, our_workers=True)["spark.authenticate"] == "false"
    assert (
        launch_settings("app", {"spark.master": "local[1]"}, told, our_workers=False).items()
        >= {
            "spark.master": "local[1]",
            "spark.driver.host": "127.0.0.1",
        }.items()
    )


def test_what_results_depend_on_only_the_configuration_can_change() -> None:
    """A session may serve other programs too, and its settings are theirs."""
    partitions, inferring = "spark.sql.shuffle.partitions", "spark.sql.constraintPropagation.enabled"
    assert sql_settings({}, {}) == dict(SQL_DEFAULTS)
    told = {partitions: "5", inferring: "true", "spark.master": "yarn"}
    chosen = sql_settings({"spark.driver.memory": "1g"}, told)
    assert partitions not in chosen  # the session has it already
    assert chosen[inferring] == "false"
    assert not {"spark.master", "spark.driver.memory"} & chosen.keys()
    settings = {partitions: "7", inferring: "true"}
    assert sql_settings(settings, told).items() >= settings.items()


@pytest.mark.parametrize(
    ("text", "told", "rest"),
    [
        ("pyspark-shell", {}, "pyspark-shell"),
        (
            "--master local[2] --conf spark.a='b c=d' -c spark.e=f --verbose pyspark-shell",
            {"spark.master": "local[2]", "spark.a": "b c=d", "spark.e": "f"},
            "--verbose pyspark-shell",
        ),
        (
            "--master=yarn --driver-memory 4g --name='my app' --packages a:b:1,c:d:2 pyspark-shell",
            {
                "spark.master": "yarn",
                "spark.driver.memory": "4g",
                "spark.app.name": "my app",
                "spark.jars.packages": "a:b:1,c:d:2",
            },
            "pyspark-shell",
        ),
        ("--files 'a b' --jars c.jar", {"spark.jars": "c.jar"}, "--files 'a b'"),
        ("--conf", {"": ""}, ""),
    ],
)
def test_arguments_of_spark_submit_are_settings(text: str, told: dict[str, str], rest: str) -> None:
    """As PYSPARK_SUBMIT_ARGS has them. What is left is what spark-submit is still to be told."""
    assert settings_in_arguments(text) == (told, rest)


def test_java_has_our_options_where_the_user_says_nothing() -> None:
    """One at a time."""
    assert java_options("", own_heap=True, cores=2).split()[0] == "-XX:+UseSerialGC"
    assert java_options("", own_heap=True, cores=8).split()[0] == "-XX:+UseParallelGC"
    assert "GC" not in java_options("", own_heap=False, cores=8)
    assert "Tier4CompileThreshold" in java_options("", own_heap=True, cores=2)
    given = "-XX:+UseZGC -XX:MetaspaceSize=1m -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=FORK"
    assert java_options(given, own_heap=True, cores=2) == given
    assert quiet_options("-Dlog4j2.configurationFile=mine", has_log_file=True) == []
    (option,) = quiet_options("", has_log_file=False)
    assert Path(option.removeprefix("-Dlog4j2.configurationFile=file://")).is_file()
    assert quiet_options("", has_log_file=True) == [option, "-Dmillstream.log.level=warn"]
    assert has_connector({"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"})
    assert not has_connector({"spark.jars": "other.jar"})


def test_a_session_of_spark_connect_is_refused_with_what_to_use() -> None:
    """Without a word of jars, which would not help."""

    class Connect:
        """Has no JVM, and says so as Spark Connect's own session does."""

        @property
        def sparkContext(self) -> None:
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
            )

    with pytest.raises(SetupException) as raised:
        SharedSession({}, "app", Connect())  # type: ignore[arg-type]
    assert "a Spark Connect session, which Millstream does not support" in str(raised.value)
    assert "dedicated" in str(raised.value)
    assert "jars" not in str(raised.value)
