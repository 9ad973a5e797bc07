"""The only package that imports pyspark: tracing, compiling, sources, sinks and running queries."""
