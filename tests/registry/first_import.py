"""Reads a Protobuf schema that imports one of Protobuf's own files, in a process that has not imported it."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from millstream import TopologyException
from millstream.serdes import protobuf_types


def schema(imported: str) -> str:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3", dependency=[imported])
    at = file.message_type.add(name="Order").field.add(name="at", number=1, type=11, label=1)
    at.type_name = ".google.protobuf.Method"
    return base64.b64encode(file.SerializeToString()).decode()


def main() -> None:
    found = protobuf_types.descriptor_of(schema("google/protobuf/api.proto"), "")
    assert found.fields[0].message_type.full_name == "google.protobuf.Method"
    with pytest.raises(TopologyException, match=r"imports items\.proto"):
        protobuf_types.descriptor_of(schema("items.proto"), "")


if __name__ == "__main__":
    main()
