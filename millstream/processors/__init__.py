"""Processors: Python code that is given one record after the other, and keeps stores.

`api` is what a user writes against, `stores` what a processor sees of a store. `graph` describes the
processors of one Spark operator, frozen, so that it can be pickled. `task` runs them for one partition; it
asks whoever runs it for bytes through two small protocols. Nothing here knows of Spark.
"""
