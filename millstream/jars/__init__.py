"""The jars of Spark's Kafka connector, the embedded broker, and the kernel's compiler.

Each is downloaded once to the user's cache directory, checked against the table's SHA-256, and then used from
there without a network. By default Ivy downloads them from its default repository (`ivy.py`); it ships with
Spark, which itself uses it for `spark.jars.packages`. `MILLSTREAM_MAVEN_REPOSITORY` names a Maven repository
to use instead, over HTTP (`repository.py`).
"""

from millstream.jars.jar_cache import ensure_jars
from millstream.jars.jar_table import BROKER_SET, COMPILER_SET, Jar, connector_set, jar_sets

__all__ = [
    "BROKER_SET",
    "COMPILER_SET",
    "Jar",
    "connector_set",
    "ensure_jars",
    "jar_sets",
]
