#!/bin/sh
# Run a script of this folder with a suitable Python: scripts/python.sh environment.py setup …
#
# It is PYTHON if that is set, else the Python that the virtual environment VENV was created with, else the
# first of the usual names. Each is run, not only looked up, because a version manager can leave a name on the
# PATH that leads to no Python.
set -eu

fits='import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")'

if [ -n "${PYTHON:-}" ]; then
    candidates=$PYTHON
else
    candidates="${VENV:-.venv}/bin/python python3 python3.13 python3.12 python3.11 python"
fi

for candidate in $candidates; do
    if "$candidate" -c "$fits" >/dev/null 2>&1; then
        script="$(dirname "$0")/$1"
        shift
        exec "$candidate" "$script" "$@"
    fi
done

echo "no suitable Python was found; tried: $candidates" >&2
echo "Millstream needs CPython 3.11 or later: install one, or name it: make setup PYTHON=/path/to/python3.12" >&2
exit 1
