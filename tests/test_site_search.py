"""What docs/site.js makes of searches, run by the Node.js that Playwright brings along."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "site.js"
PROGRAM = """
global.Worker = class { postMessage(message) { this.got = message.data; } };
require(process.argv[1]);
const worker = new Worker(), messages = JSON.parse(process.argv[2]);
console.log(JSON.stringify(messages.map(message => (worker.postMessage(message), worker.got))));
"""
QUERY, SETUP = 2, 0


@pytest.mark.disk
def test_a_search_is_for_the_words_that_say_something() -> None:
    """Others would find most pages. They stay if they are all there is, and in the search's own language. The
    words of a pasted message are looked for as they are, in texts."""
    asked = {
        "how do I join two streams": "join two streams",
        "a Column was used as a Python bool": "text:Column^1 text:Python^1 text:bool^1",
        "source topic 'in' is missing on 'localhost:9092'": (
            "text:source^1 text:topic^1 text:missing^1 text:localhost^1 text:9092^1"
        ),
        "title:join a stream with a table": "title:join a stream with a table",
        "application.id": "application.id",
        "how": "how",
        '"at least once"': '"at least once"',
    }
    messages = [*({"type": QUERY, "data": query} for query in asked), {"type": SETUP, "data": "how to"}]
    node = compute_driver_executable()[0]
    command = [node, "-e", PROGRAM, str(SCRIPT), json.dumps(messages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [*asked.values(), "how to"]
