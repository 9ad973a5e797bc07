"""Schema registries: a client, and a small registry for tests and development.

`settings` has the registry settings of a configuration. `client` uses a registry over HTTP, by the REST
interface of Confluent's and compatible registries. `state`, `compatibility`, `http` and `topic` implement
`millstream registry` and `mock://`.
"""
