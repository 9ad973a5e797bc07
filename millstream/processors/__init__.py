"""Processors: Python code that processes one record at a time, and can have stores.

`api` is the interface for users, and `stores` has a processor's view of its stores. `graph` describes the
processors of one Spark operator as frozen data that can be pickled. `task` runs them for one partition, and
accesses its host through two small protocols, in bytes. Nothing here depends on Spark.
"""
