"""The demonstration: counts the words of real text on a real Kafka and Spark, live, and checks every count.

`make demo` and `millstream demo` start it. What a user of Millstream would write is in `word_count.py`, and
how such a program is watched in `run.py`; `screen.py` and `prompt.py` are what one sees of it.
"""
