"""`millstream reset`: the equivalent of kafka-streams-application-reset, including local state."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.cluster import PATIENCE
from millstream.cli.command_settings import BootstrapServer, ConfigFile, Setting, settings
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, as_json

if TYPE_CHECKING:
    from millstream.runtime.reset.reset_plan import ResetPlan, To

__all__ = ["duration_of", "reset", "target_of"]

_WHERE = "Where to read input topics from (at most one of these; default --to-earliest)"


def reset(
    application_id: Annotated[
        str, typer.Argument(metavar="APPLICATION_ID", help="The application.id.", show_default=False)
    ],
    bootstrap_server: BootstrapServer = None,
    input_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC,…", help="The input topics. Default: those that its group has offsets of."
        ),
    ] = None,
    internal_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC,…", help="Delete only these internal topics. Default: all of the application's."
        ),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", rich_help_panel=_WHERE, help="From the earliest record.")
    ] = False,
    to_latest: Annotated[
        bool,
        typer.Option("--to-latest", rich_help_panel=_WHERE, help="From the first record after the reset."),
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_WHERE,
            metavar="TIME",
            help="From the first record at or after this time: 2026-05-01T12:00:00.000; UTC if it names "
            "no zone.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(rich_help_panel=_WHERE, min=0, help="From this offset of each partition.")
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(rich_help_panel=_WHERE, metavar="PT…", help="From this long ago: PT1H30M, P7D."),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_WHERE,
            help="Shift the group's offsets by this many records; negative shifts back.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_WHERE,
            exists=True,
            dir_okay=False,
            help="From the offsets in a CSV file, with lines topic,partition,offset.",
        ),
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="The clients' state.dir.")] = None,
    checkpoint_location: Annotated[
        str | None, typer.Option(help="The clients' checkpoint.location, if they use to_spark().")
    ] = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove dead members from the group; close all clients first."),
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Reset an application: it reads its input topics again from a chosen place, and starts with empty state.

    Deletes its internal topics and its local state, and sets the offsets of its group. Its output topics
    keep their records. Close all its clients first; --dry-run shows what will be done.
    """
    from millstream.config import StreamsConfig
    from millstream.runtime.reset.resetter import Reset, raise_if_alive, reset_application
    from millstream.runtime.wiring import real_parts

    to = target_of(to_earliest, to_latest, to_datetime, to_offset, by_duration, from_file, shift_by)
    given = settings(
        config_file,
        os.environ,
        set_,
        {
            "application.id": application_id,
            "bootstrap.servers": bootstrap_server,
            "state.dir": None if state_dir is None else str(state_dir),
            "checkpoint.location": checkpoint_location,
        },
    )
    if "bootstrap.servers" not in given:
        raise typer.BadParameter("Kafka's address is missing", param_hint="--bootstrap-server")
    asked = Reset(to, shift_by, _names(input_topics), _names(internal_topics), force)
    config, parts = StreamsConfig(given), real_parts()
    # Whether somebody is there is soon known; to delete topics may take long.
    plan = reset_application(StreamsConfig(PATIENCE | given), parts, asked, dry_run=True)

    def say(text: str) -> None:
        if not json:
            typer.echo(text)

    say(f"{'Would reset' if dry_run else 'Resetting'} {plan}")
    if dry_run:
        say("Nothing was changed. To do this, run it without --dry-run.")
    else:
        raise_if_alive(plan, force)
        reset_application(config, parts, asked, report=lambda step: say(f"… {step}"))
        say("Done. The next start creates the internal topics again and begins as shown above.")
    if json:
        typer.echo(as_json(plan_as_dict(plan, done=not dry_run)))


def plan_as_dict(plan: ResetPlan, *, done: bool) -> dict[str, Any]:
    """A plan in a form for `json.dumps`."""
    return {
        "application_id": plan.application_id,
        "done": done,
        "positions": [
            {"topic": each.at.topic, "partition": each.at.partition, "offset": each.offset, "note": each.note}
            for each in plan.positions
        ],
        "missing_topics": list(plan.missing),
        "deleted_topics": list(plan.internal),
        "kept_topics_of_others": dict(plan.foreign),
        "checkpoints": {"location": plan.checkpoints, "found": plan.has_checkpoints},
        "state": {"directory": plan.state, "tasks": plan.tasks},
        "members": sorted(plan.members.values()),
    }


def target_of(
    earliest: bool,
    latest: bool,
    when: str | None,
    offset: int | None,
    ago: str | None,
    file: Path | None,
    shift: int | None,
) -> To:
    """The start that the options select; a shift is "earliest" here, and handled separately.

    Raises:
        typer.BadParameter: there are several of them, or one cannot be parsed.
    """
    from millstream.runtime.reset.reset_plan import parse_offsets

    given = {
        "--to-earliest": earliest,
        "--to-latest": latest,
        "--to-datetime": when is not None,
        "--to-offset": offset is not None,
        "--by-duration": ago is not None,
        "--from-file": file is not None,
        "--shift-by": shift is not None,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} cannot be combined; use one of them")
    if latest:
        return "latest"
    if when is not None:
        try:
            return datetime.fromisoformat(when)
        except ValueError as error:
            raise typer.BadParameter(
                f"{when!r} is not a time: {error}", param_hint="--to-datetime"
            ) from error
    if offset is not None:
        return offset
    if ago is not None:
        return duration_of(ago)
    if file is not None:
        try:
            return parse_offsets(file.read_text(encoding="utf-8").splitlines(), str(file))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--from-file") from error
    return "earliest"


def duration_of(text: str) -> timedelta:
    """A duration in ISO 8601, in days and smaller units: `P1DT2H3M4.5S`.

    Raises:
        typer.BadParameter: it is not a duration.
    """
    import re

    found = re.fullmatch(
        r"P(?:([0-9]+)D)?(?:T(?=.)(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?", text.upper()
    )
    if found is None or not any(found.groups()):
        raise typer.BadParameter(
            f"{text!r} is not a duration such as PT1H30M or P7D", param_hint="--by-duration"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _names(given: list[str] | None) -> list[str] | None:
    """Topics, from one or more options, each with one topic or several separated by commas."""
    if not given:
        return None
    return [name.strip() for each in given for name in each.split(",") if name.strip()]
