"""The demonstration: counts the words of real text on a real Kafka and Spark, live, and checks every count.

`make demo` and `millstream demo` start it. `word_count.py` is what a user of Millstream would write. `run.py`
shows how to watch such a program; `screen.py` and `prompt.py` are what the user sees.
"""
