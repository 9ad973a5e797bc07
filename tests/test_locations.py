"""Paths and URIs."""

from __future__ import annotations

from millstream.locations import scheme_of


def test_a_uri_has_a_scheme_also_without_an_authority() -> None:
    """`hdfs:/path` is on the cluster that Hadoop is configured for; a drive is a path."""
    for location, scheme in (("hdfs:/cp", "hdfs"), ("HDFS://nn:8020/cp", "hdfs"), ("file:/cp", "file")):
        assert scheme_of(location) == scheme
    for path in ("/srv/cp", "relative", "C:/cp", "/odd:/cp", ""):
        assert scheme_of(path) == ""
