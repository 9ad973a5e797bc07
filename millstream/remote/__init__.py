"""Stores elsewhere: `RemoteStore`, and the protocol that it and the query servers speak.

`store` has `RemoteStore`. Requests go over a `wire`, whose two ends may have to prove themselves (`proof`).
What travels is defined once for both ends: a read as a request (`routes`), keys and values as text (`codec`),
pages of ranges (`pages`), and exceptions (`answers`). None of these four does any input or output.
"""
