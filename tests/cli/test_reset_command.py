"""`millstream reset`: what its options mean. What it does is tested where applications run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from millstream.cli.main import app
from millstream.cli.reset import duration_of, plan_as_dict, target_of
from millstream.model import TopicPartition
from millstream.runtime.reset.reset_plan import NewPosition, ResetPlan


def target(**given: object) -> object:
    """`target_of`, with what is not given left out."""
    return target_of(
        bool(given.get("earliest")),
        bool(given.get("latest")),
        given.get("when"),  # type: ignore[arg-type]
        given.get("offset"),  # type: ignore[arg-type]
        given.get("ago"),  # type: ignore[arg-type]
        given.get("file"),  # type: ignore[arg-type]
        given.get("shift"),  # type: ignore[arg-type]
    )


def test_each_option_says_where_to_begin(tmp_path: Path) -> None:
    """The first record, without any; one of them only."""
    file = tmp_path / "offsets.csv"
    file.write_text("in,0,12\n\nin, 1, 7\n")
    assert target() == target(earliest=True) == target(shift=-3) == "earliest"
    assert target(latest=True) == "latest"
    assert target(offset=0) == 0
    assert target(when="2026-05-01T12:00:00.000") == datetime(2026, 5, 1, 12)
    assert target(when="2026-05-01T12:00:00Z") == datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert target(ago="P1DT2H3M4.5S") == timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert target(file=file) == {TopicPartition("in", 0): 12, TopicPartition("in", 1): 7}
    with pytest.raises(typer.BadParameter, match="--to-latest and --to-offset cannot be combined"):
        target(latest=True, offset=3)
    file.write_text("in,0,12\nin,zero,1\n")
    with pytest.raises(typer.BadParameter, match=r"line 2: 'in,zero,1' is not topic,partition,offset"):
        target(file=file)
    with pytest.raises(typer.BadParameter, match="'noon' is not a time"):
        target(when="noon")
    for text in ("", "P", "PT", "1H", "P1H", "PT1D"):
        with pytest.raises(typer.BadParameter, match="PT1H30M"):
            duration_of(text)


def test_a_plan_is_json_as_well() -> None:
    """Programs can see what is read from where, and what is deleted."""
    position = NewPosition(TopicPartition("in", 0), 12, 3, 40, "it has no more")
    plan = ResetPlan("app", (position,), internal=("app-x-changelog",), tasks=2)
    told = json.loads(json.dumps(plan_as_dict(plan, done=False)))
    assert told["positions"] == [{"topic": "in", "partition": 0, "offset": 12, "note": "it has no more"}]
    assert (told["done"], told["deleted_topics"], told["state"]["tasks"]) == (False, ["app-x-changelog"], 2)


def test_what_is_missing_or_wrong_is_said(tmp_path: Path) -> None:
    """The error comes before any question or change."""
    run = CliRunner()
    env = {"NO_COLOR": "1", "COLUMNS": "200"}
    result = run.invoke(app, ["reset", "my-app"], env=env)
    assert result.exit_code == 2
    assert "Kafka's address is missing" in result.output
    settings = tmp_path / "client.properties"
    settings.write_text("# of the clients\nbootstrap.servers=127.0.0.1:1\nwhat is this\n")
    result = run.invoke(app, ["reset", "my-app", "--config-file", str(settings)], env=env)
    assert result.exit_code == 2
    assert "line 3: a setting must have the form name=value" in result.output
    settings.write_text("bootstrap.servers=127.0.0.1:1\nrequest.timeout.ms=300\n")
    state = tmp_path / "state"
    result = run.invoke(
        app, ["reset", "my-app", "--config-file", str(settings), "--state-dir", str(state)], env=env
    )
    assert result.exit_code == 1
    assert "bootstrap.servers is '127.0.0.1:1'" in result.output
    assert not state.exists(), "nothing was made"
