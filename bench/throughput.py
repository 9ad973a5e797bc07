"""How many records a second a word count handles: Millstream's against jobs written by hand, in turns.

All run in one JVM, on one broker, over the same preloaded topic, each time with fresh topics and checkpoints.
The time is from the trigger of the first micro-batch, as the query's own checkpoint has it, to the moment at
which a consumer has seen the last count. Millstream's runs include what its Python side does meanwhile: the
store updater reads the changelog and writes RocksDB, on the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.lab import Lab, batch_times, has_committed, stop
from bench.words import (
    PARTITIONS,
    WORDS_PER_LINE,
    OutputWatcher,
    from_big_endian,
    hand_written,
    is_up,
    naive,
    produce_lines,
    topology,
    wait_for,
)
from millstream import KafkaStreams

__all__ = ["measure"]

_PATIENCE_S = 600.0
_LATENCY_OPTIONS = {"kafka.fetch.max.wait.ms": "10"}


@dataclass(frozen=True, slots=True)
class Run:
    """One job over the whole input, in seconds."""

    output_s: float
    committed_s: float
    cpu_s: dict[str, float]
    records: int
    batches: int
    queryable_s: float = 0.0


class Jobs:
    """The variants, by name. Each call is one whole run."""

    def __init__(self, lab: Lab, source: str, lines: int) -> None:
        self._lab, self._source, self._lines = lab, source, lines

    def millstream(self) -> Run:
        lab = self._lab
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        streams = KafkaStreams(
            topology(self._source, output),
            {
                "application.id": application,
                "bootstrap.servers": lab.bootstrap_servers,
                "state.dir": str(state),
            },
        )
        watcher = self._watcher(output, from_big_endian)
        with lab.cpu() as cpu, streams:
            watcher.wait(_PATIENCE_S, is_up(streams))
            wait_for(lambda: _stores_up_to_date(streams), 60, "stores up to date", is_up(streams))
            queryable_at = time.time()
            checkpoint = state / application / "checkpoints" / "p0.1"  # the first claim of it
            wait_for(lambda: has_committed(checkpoint), 60, "commit", is_up(streams))
        times = batch_times(checkpoint)
        return Run(
            watcher.complete_at - times.first_begun,
            times.last_committed - times.first_begun,
            cpu,
            watcher.records,
            times.batches,
            queryable_at - times.first_begun,
        )

    def hand_written(self) -> Run:
        lab = self._lab
        changelog = lab.topic("changelog", PARTITIONS, {"cleanup.policy": "compact"})
        session = lab.session(tuned=True)
        return self._plain(
            lambda output, checkpoint: hand_written(
                session,
                lab.bootstrap_servers,
                self._source,
                output,
                changelog,
                checkpoint,
                _LATENCY_OPTIONS,
            ),
            from_big_endian,
        )

    def naive_tuned(self) -> Run:
        session = self._lab.session(tuned=True)
        return self._plain(
            lambda output, checkpoint: naive(
                session,
                self._lab.bootstrap_servers,
                self._source,
                output,
                checkpoint,
                _LATENCY_OPTIONS,
            ),
            int,
        )

    def naive_default(self) -> Run:
        session = self._lab.session(tuned=False)
        return self._plain(
            lambda output, checkpoint: naive(
                session, self._lab.bootstrap_servers, self._source, output, checkpoint, {}
            ),
            int,
        )

    def _plain(self, start: Callable[..., object], decode: Callable[[bytes], int]) -> Run:
        output, checkpoint = self._lab.topic("out", PARTITIONS), self._lab.path("checkpoint")
        watcher = self._watcher(output, decode)
        with self._lab.cpu() as cpu:
            query = start(output, checkpoint)
            try:
                watcher.wait(_PATIENCE_S, lambda: query.isActive)  # type: ignore[attr-defined]
                wait_for(lambda: has_committed(checkpoint), 60, "commit")
            finally:
                stop(query)  # type: ignore[arg-type]
        times = batch_times(checkpoint)
        return Run(
            watcher.complete_at - times.first_begun,
            times.last_committed - times.first_begun,
            cpu,
            watcher.records,
            times.batches,
        )

    def _watcher(self, output: str, decode: Callable[[bytes], int]) -> OutputWatcher:
        return OutputWatcher(
            self._lab.bootstrap_servers, output, PARTITIONS, self._lines * WORDS_PER_LINE, decode
        )


def _stores_up_to_date(streams: KafkaStreams) -> bool:
    lags = streams.all_local_store_partition_lags().get("counts", {})
    return len(lags) == PARTITIONS and all(
        lag.end_offset_position > 0 and lag.offset_lag == 0 for lag in lags.values()
    )


_LABELS = {
    "millstream": "Millstream (output, changelog, RocksDB store)",
    "hand_written": "by hand, same outputs, same settings",
    "naive_tuned": "by hand, output only, same settings",
    "naive_default": "by hand, output only, Spark's defaults",
}


def measure(lab: Lab, *, quick: bool, tell: Progress, lines: int | None = None) -> Report:
    """Run each job once to warm up, then all of them in turns."""
    lines = lines or (200_000 if quick else 1_000_000)
    repetitions = 3 if quick else 5
    source = lab.topic("lines", PARTITIONS)
    tell(f"writing {lines:,} lines of {WORDS_PER_LINE} words")
    produce_lines(lab.bootstrap_servers, source, lines)
    jobs = Jobs(lab, source, lines)
    runs: dict[str, list[Run]] = {name: [] for name in _LABELS}
    for name in _LABELS:
        tell(f"warming up: {_LABELS[name]}")
        getattr(jobs, name)()
    for number, order in enumerate(rounds(list(_LABELS), repetitions), 1):
        for name in order:
            tell(f"round {number} of {repetitions}: {_LABELS[name]}")
            runs[name].append(getattr(jobs, name)())
    return _report(lines, runs)


def _report(lines: int, runs: dict[str, list[Run]]) -> Report:
    seconds = {name: [run.output_s for run in of] for name, of in runs.items()}
    rows = []
    for name, of in runs.items():
        taken = spread(seconds[name])
        against = ratios(seconds["millstream"], seconds[name])
        cpu = {part: median([run.cpu_s[part] for run in of]) for part in ("spark", "python", "broker")}
        rows.append(
            (
                _LABELS[name],
                str(taken),
                f"{lines / taken.median:,.0f}",
                f"{lines * WORDS_PER_LINE / taken.median:,.0f}",
                f"{cpu['spark']:.1f} + {cpu['python']:.1f} + {cpu['broker']:.1f}",
                ""
                if name == "millstream"
                else f"{against.median:.3f} ({against.low:.3f} to {against.high:.3f})",
            )
        )
    mine, theirs = runs["millstream"], runs["hand_written"]
    overhead = ratios(seconds["millstream"], seconds["hand_written"])
    committed = ratios([r.committed_s for r in mine], [r.committed_s for r in theirs])
    cpu_ratio = ratios([r.cpu_s["spark"] for r in mine], [r.cpu_s["spark"] for r in theirs])
    queryable = median([r.queryable_s - r.output_s for r in mine])
    records = sorted({run.records for run in mine})
    table = Table(
        f"Throughput: word count over {lines:,} lines, {len(mine)} rounds in turns",
        ("job", "seconds", "lines/s", "words/s", "CPU s: Spark + Python + broker", "Millstream / this"),
        tuple(rows),
        (
            f"to the last commit instead of the last output: {committed.median:.3f} "
            f"({committed.low:.3f} to {committed.high:.3f}) of the same job by hand; "
            f"Spark's CPU time, start and planning included: {cpu_ratio.median:.3f} "
            f"({cpu_ratio.low:.3f} to {cpu_ratio.high:.3f})",
            f"{queryable * 1000:.0f} ms after the last output the stores have every count, too",
            f"{'/'.join(map(str, records))} output records in {mine[0].batches} micro-batches",
        ),
    )
    goal = Goal("time against the same job by hand", overhead.median, 1.03, "x")
    return Report(
        "throughput",
        (table,),
        (goal,),
        {"lines": lines, "runs": {name: [asdict(run) for run in of] for name, of in runs.items()}},
    )
