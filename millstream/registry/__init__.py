"""Schema registries: who is asked for schemas, and a small one of our own for tests and development.

`settings` is what a configuration says of a registry, `client` asks one over HTTP, with what Confluent's
registry and those like it answer to. `state`, `compatibility`, `http` and `topic` are `millstream registry`,
and what `mock://` stands for.
"""
