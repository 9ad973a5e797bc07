"""How the pipelines of a client are to run, as its configuration says: `processing.mode`."""

from __future__ import annotations

from millstream.config import StreamsConfig
from millstream.topology.real_time import Mode, Modes

__all__ = ["modes_of"]


def modes_of(config: StreamsConfig) -> Modes:
    """The mode of each pipeline, and what of the configuration stands in the way of Real-Time Mode."""
    against = []
    if config.exactly_once:
        against.append(
            "processing.guarantee=exactly_once_v2 writes a batch in one transaction, so nobody would see a "
            "record before its batch ends."
        )
    if own := sorted(config.own_handlers):
        names = ", ".join(f"{kind}.exception.handler" for kind in own)
        against.append(f"{names} is a handler in Python, which gets its records in batches.")
    return Modes(
        Mode(config["processing.mode"]),
        {name: Mode(mode) for name, mode in config.with_prefix("processing.mode.").items()},
        tuple(against),
    )
