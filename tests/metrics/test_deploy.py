"""The board for Grafana and the alerts for Prometheus: what they ask for is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metrics_of_everything import everything
from prometheus_client.parser import text_string_to_metric_families

from millstream.metrics.prometheus import text

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BOARD = json.loads((DEPLOY / "grafana" / "millstream.json").read_text("utf-8"))
ALERTS = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
ASKED = re.compile(r"\b((?:kafka_streams|kafka_consumer|millstream)_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def exported() -> dict[str, set[str]]:
    """The labels of each metric that a client may have."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text(everything())):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def board_queries(board: Any = BOARD) -> Iterator[str]:
    """All that the board asks for, those of its variables included."""
    if isinstance(board, dict):
        for key, value in board.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            else:
                yield from board_queries(value)
    elif isinstance(board, list):
        for each in board:
            yield from board_queries(each)


def rules() -> list[str]:
    """The text of each rule."""
    return re.split(r"^      - alert: ", ALERTS, flags=re.MULTILINE)[1:]


def expression(rule: str) -> str:
    """What a rule asks for."""
    found = re.search(r"^        expr: (?:>-\n)?((?:.*\n)+?)        (?:for|labels):", rule, re.MULTILINE)
    assert found is not None, rule
    return " ".join(found[1].split())


def wrong_in(query: str) -> list[str]:
    """Metrics and labels that a query asks for, and that no client has."""
    known, wrong = exported(), []
    asked = ASKED.findall(query)
    labels = {label for name, _ in asked for label in known.get(name, set())}
    for name, selector in asked:
        if name not in known:
            wrong.append(f"{query}: there is no {name}")
            continue
        wanted = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
        wrong += [f"{query}: {name} has no label {label}" for label in wanted if label not in known[name]]
    for group in GROUPED.findall(query):
        wrong += [f"{query}: nothing has a label {each}" for each in group.split(", ") if each not in labels]
    return wrong


def test_a_client_has_each_metric_and_label_that_the_board_asks_for() -> None:
    """Panels and variables are checked."""
    queries = [each for each in board_queries() if each != "prometheus"]
    assert len(queries) > 30
    assert [problem for query in queries for problem in wrong_in(query)] == []


def test_what_a_panel_shows_is_a_label_of_what_it_asks_for() -> None:
    """A legend without a value says nothing."""
    known, wrong = exported(), []
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            has = {label for name, _ in ASKED.findall(target["expr"]) for label in known[name]}
            wrong += [
                f"{panel['title']}: {label}"
                for label in SHOWN.findall(target["legendFormat"])
                if label not in has
            ]
    assert wrong == []


def test_a_client_has_each_metric_and_label_that_an_alert_asks_for() -> None:
    """Expressions and texts are checked."""
    assert len(rules()) == 10
    wrong = []
    for rule in rules():
        asked = expression(rule)
        names = [name for name, _ in ASKED.findall(asked)]
        assert names, rule
        wrong += wrong_in(asked)
        has = {label for name in names for label in exported().get(name, set())}
        wrong += [f"{asked}: {label}" for label in SHOWN.findall(rule) if label not in has]
    assert wrong == []


def test_alerts_that_compare_counts_see_that_nothing_is_left() -> None:
    """A comparison has no answer where one of its sides has none, and `increase` sees no first value.

    That the answers are right says Prometheus' own tool, by alerts_test.yml.
    """
    asked = {rule.partition("\n")[0]: expression(rule) for rule in rules()}
    assert "unless count by (application_id)" in asked["MillstreamApplicationGone"]
    kinds = [each for each in asked.values() if "failures_total" in each or "dropped_records_total" in each]
    assert len(kinds) == 3
    for each in kinds:
        form = r"increase\((\S+)\[(\d+m)\]\) > 0 or \((\S+) > 0 unless (\S+) offset (\d+m)\)"
        found = re.fullmatch(form, each)
        assert found is not None, each
        assert found[1] == found[3] == found[4]
        assert found[2] == found[5]
    assert "on (thread_id)" in asked["MillstreamNoCommit"]


def test_the_board_is_laid_out_without_gaps_and_overlaps() -> None:
    """Panels of a line fill it; each has a number of its own."""
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    lines: dict[int, int] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] == lines.get(place["y"], 0), panel["title"]
        lines[place["y"]] = place["x"] + place["w"]
    assert set(lines.values()) == {24}
