"""The jars of Spark's Kafka connector, the embedded broker and S3A, and the kernel's compiler.

Each is downloaded once to the user's cache directory, checked against the table's SHA-256, and then used
from there without a network. Where from: by default with Ivy, the client that ships with Spark and that
Spark itself uses for `spark.jars.packages`, from the repository that is Ivy's default (`ivy.py`); or from the
Maven repository in `MILLSTREAM_MAVEN_REPOSITORY`, over HTTP (`repository.py`).
"""

from millstream.jars.cache import ensure_jars
from millstream.jars.table import BROKER_SET, COMPILER_SET, Jar, connector_set, jar_sets, object_store_set

__all__ = [
    "BROKER_SET",
    "COMPILER_SET",
    "Jar",
    "connector_set",
    "ensure_jars",
    "jar_sets",
    "object_store_set",
]
