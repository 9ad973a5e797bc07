"""What `millstream takeover` prints of an application."""

from __future__ import annotations

from cli_running import run

from millstream.cli.takeover import Takeover, takeover_as_dict, takeover_text
from millstream.topology.store_takeovers import StoreTakeover

COUNTS = StoreTakeover("counts", "app-counts-changelog")
MEANS = StoreTakeover("means", "app-means-changelog", "avg() needs more than its result to go on")
NOTHING = StoreTakeover("scratch", "", "it has no changelog", "it has no changelog")


def found(*stores: StoreTakeover, **more: tuple[str, ...]) -> Takeover:
    rest = {"unknown": (), "members": (), "problems": (), **more}
    return Takeover("app", {"lines": 12_408}, [(store, 2_310) for store in stores], **rest)


def test_all_that_goes_on_is_a_line_each() -> None:
    """And at the end, what to do. A store without a changelog hinders nothing."""
    assert takeover_text(found(COUNTS, NOTHING)).splitlines() == [
        "Application 'app' has read up to offset 12,408 in lines.",
        "",
        "STORE    KEPT IN               OFFSETS  GOES ON  AND BACK",
        "counts   app-counts-changelog    2,310  yes      yes",
        "scratch  -                       2,310  no       no",
        "",
        "scratch does not go on: it has no changelog.",
        "Start the program: everything goes on where it has stopped.",
    ]


def test_what_does_not_go_on_has_a_reason() -> None:
    """A store, state that the program does not know, a problem, and clients that are still there."""
    text = takeover_text(found(COUNTS, MEANS, unknown=("app-x-changelog",), problems=("no topic",)))
    assert "means does not go on: avg() needs more than its result to go on." in text
    assert "app-x-changelog is state of which this program knows no store" in text
    assert "no topic" in text
    assert "millstream reset" in text
    assert "still has 1 client: one. Stop them first." in takeover_text(found(COUNTS, members=("one",)))


def test_only_a_whole_takeover_is_one() -> None:
    """As a program reads it, and by the exit code."""
    assert takeover_as_dict(found(COUNTS, NOTHING))["whole"]
    for each in (
        found(COUNTS, MEANS),
        found(COUNTS, unknown=("x",)),
        found(COUNTS, members=("x",)),
        found(COUNTS, problems=("x",)),
    ):
        assert not takeover_as_dict(each)["whole"]


def test_it_asks_for_the_application() -> None:
    """Its id is not in the program."""
    code, said = run("takeover", "examples/orders.py", "--bootstrap-server", "localhost:1")
    assert code == 2
    assert "which application" in said
