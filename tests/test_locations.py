"""Where checkpoints can be kept."""

from __future__ import annotations

import pytest

from millstream.config import StreamsConfig
from millstream.errors import ConfigException
from millstream.locations import ClaimKind, caution, kind_of, scheme_of


def test_paths_and_known_schemes_have_a_kind() -> None:
    """A drive is a path; a scheme is one whatever its letters."""
    for location in (
        "/srv/cp",
        "relative",
        "C:/cp",
        "file:///cp",
        "hdfs://nn:8020/cp",
        "abfss://c@a.net/cp",
        "hdfs:/cp",
    ):
        assert kind_of(location) is ClaimKind.FILES
    for location in ("s3a://bucket/cp", "S3A://bucket"):
        assert kind_of(location) is ClaimKind.OBJECTS


def test_a_uri_has_a_scheme_also_without_an_authority() -> None:
    """`hdfs:/path` is on the cluster that Hadoop is configured for: as shared as one that names it."""
    for location, scheme in (("hdfs:/cp", "hdfs"), ("HDFS://nn:8020/cp", "hdfs"), ("file:/cp", "file")):
        assert scheme_of(location) == scheme
        assert kind_of(location) is ClaimKind.FILES
    for path in ("/srv/cp", "relative", "C:/cp", "/odd:/cp", ""):
        assert scheme_of(path) == ""


def test_only_object_stores_come_with_a_caution() -> None:
    """It names the place, and says what to use for what matters."""
    assert "'s3a://bucket/cp' is in an object store, which is new" in (caution("s3a://bucket/cp") or "")
    assert [caution(location) for location in ("", "/srv/cp", "hdfs:/cp")] == [None] * 3


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("s3://bucket/cp", "write s3a:// instead"),
        ("gs://bucket/cp", "has not been tested"),
        ("wasbs://c@a.net/cp", "write abfss:// instead"),
        ("dbfs:/cp", "cannot be on dbfs://.*Use a path, or file://, hdfs://"),
    ],
)
def test_any_other_place_is_refused(location: str, says: str) -> None:
    """The error says what to use instead, if that is known."""
    with pytest.raises(ConfigException, match=says):
        StreamsConfig(
            {"application.id": "a", "bootstrap.servers": "localhost:9092", "checkpoint.location": location}
        )
