"""PySpark's module for tests: not imported by programs, and whole for whoever wants it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.disk

_PROGRAM = textwrap.dedent(
    """
    import sys
    import pyspark
    from pyspark.sql.types import NumpyScalarConverter
    from millstream.spark.jvm.testing_later import postpone_testing

    def forget():
        for name in [name for name in sys.modules if name.startswith("pyspark.testing")]:
            del sys.modules[name]
        vars(pyspark).pop("testing", None)

    WAYS = (
        "from pyspark.testing import assertDataFrameEqual as found",
        "from pyspark.testing.utils import assertDataFrameEqual as found",
        "import pyspark.testing; found = pyspark.testing.assertDataFrameEqual",
        "import pyspark.testing.utils; found = pyspark.testing.utils.assertDataFrameEqual",
        "import pyspark.testing.utils as utils; found = utils.assertDataFrameEqual",
        "from pyspark.testing import utils; found = utils.assertDataFrameEqual",
        "from pyspark.testing.sqlutils import ReusedSQLTestCase; "
        "from pyspark.testing import assertDataFrameEqual as found",
    )
    assert not [name for name in sys.modules if name.startswith("pyspark.testing")]
    postpone_testing()
    assert NumpyScalarConverter().can_convert("text") is False
    import numpy
    assert NumpyScalarConverter().can_convert(numpy.int64(1)) is True
    assert "pandas" not in sys.modules
    for way in WAYS:
        forget()
        postpone_testing()
        postpone_testing()  # as with each start of Spark
        names = {}
        exec(way, names)
        real = sys.modules["pyspark.testing.utils"]
        assert names["found"] is real.assertDataFrameEqual, way
        assert names["found"].__module__ == "pyspark.testing.utils", way
        assert pyspark.testing is sys.modules["pyspark.testing"], way
        assert pyspark.testing.utils is real, way
        assert type(real) is type(sys), way
        postpone_testing()
        assert sys.modules["pyspark.testing.utils"] is real, way
    try:
        from pyspark.testing.utils import nothing
    except ImportError:
        print("done")
    """
)


def test_programs_do_not_import_what_pyspark_has_for_tests() -> None:
    """It imports pandas. Whoever imports it by any of its names gets all of it."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("done", 0), done.stderr
