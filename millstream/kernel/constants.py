"""Constants that stand in messages and rows between Python and the kernel's Java.

They are written here only: `kernel/build.py` makes `Constants.java` of them, with these docstrings. A text of
one letter is a `byte` there.
"""

KIND_UPDATE = 0
"""A row of an operator's output: a new value of a key."""
KIND_GONE = 1
"""A row of an operator's output: a key has no value any more."""
KIND_CLOSED = 2
"""A row of an operator's output: the final value of a window, or of what was held back."""
KIND_LATE = 3
"""A row of an operator's output: a record that came too late."""
KIND_CLOSED_GONE = 4
"""A row of an operator's output: what was held back is gone."""

SIDE_LEFT = 0
"""In the column `time` of a table join's row: the left side has changed."""
SIDE_RIGHT = 1
"""In the column `time` of a table join's row: the right side has changed."""

CONTROL_RESTORED = 2
"""In the column `control` of a task's row: it was processed earlier; what follows from it is kept."""

MESSAGE_PROGRAM = "P"
"""To Python: the version of Python, and the pickled program, which is a function from frames to frames."""
MESSAGE_REQUEST = "R"
"""To Python: frames for the program."""
MESSAGE_ANSWER = "A"
"""From Python: the frames that it returned."""
MESSAGE_ALIVE = "B"
"""From Python, at most once a second, before any of the others: it is still working, and makes progress."""
MESSAGE_ERROR = "E"
"""From Python: the exception that it raised, as the text of a traceback."""
MESSAGE_QUESTION = "Q"
"""From Python, any number of times before it answers: frames for its caller, which replies."""
MESSAGE_REPLY = "Y"
"""To Python: the reply to a question."""
MESSAGE_CLOSE = "C"
"""To Python: what its programs have kept is not needed any more."""

FRAME_INTS = "i"
"""A frame of a message: numbers of 32 bits."""
FRAME_LONGS = "q"
"""A frame of a message: numbers of 64 bits."""
FRAME_BYTES = "y"
"""A frame of a message: byte strings, or nulls."""

ASK_VALUE = "g"
"""A worker asks for the value of one key in a store."""
ASK_OWN_VALUE = "o"
"""A worker asks for the values of a store under the keys of its records."""
ASK_RANGE = "r"
"""A worker asks for a page of a range of a store."""
ASK_COUNT = "c"
"""A worker asks how many entries a store has."""
TICK = -1
"""In place of a record's input: a punctuation."""
TELL = -2
"""In place of a record's input: the next rows in stores of transformers, for what follows from these."""
RESTORED = -3
"""In place of a record's input: that of the first one, for a row that was processed earlier; and so on."""
NOTHING = -1
"""In place of a size or a number: there is none."""

FOLD_WANTED = 1
"""A fold's result is wanted at once."""
FOLD_USED_AGAIN = 2
"""A fold's result is the beginning of a later fold."""

ANSWER_CONTINUE = 0
"""A handler's answer: the record is dropped."""
ANSWER_FAIL = 1
"""A handler's answer: the task fails."""
ANSWER_NOT_ASKED = 2
"""In place of a handler's answer: there is no handler for this."""
PLACE_REFUSED = -1
"""In place of where a record failed: Kafka has refused it."""

METRIC_BYTES = "bytes"
"""A metric of the Kafka source: the bytes that it has read."""
METRIC_WRITTEN = "written:"
"""How the names of the sink's metrics of a topic begin."""

HEADER_PARTS = "millstream.parts"
"""The header of a changelog's record with what the value was merged from."""
