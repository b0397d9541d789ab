"""Typed reads of the engine steps of a case: how long each took, and which stand out."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

OUTLIER_FACTOR = 1.5
"""A step this many times as long as the median of its phase is an outlier."""


@dataclass(frozen=True)
class StepRow:
    """One engine step, or a prefill that an annotation names outside the steps.

    Attributes:
        step_id: None for a prefill outside the steps.
        phase: `prefill` or `decode` where an annotation says so; otherwise `usual` for a step with about the usual
            number of device operations, `unusual` for any other.
        pid: process.
        start_ns: on the case's clock, when the host began it and the device was done with all before.
        end_ns: when the host left it and the device was done with it.
        op_count: device operations that it launched.
        device_ns: their time, added up over streams.
        times_median: length over the median of the phase.
        is_usual: it launched about as many device operations as most steps of its process.
    """

    step_id: int | None
    phase: str
    pid: int | None
    start_ns: int
    end_ns: int
    op_count: int
    device_ns: int
    times_median: float
    is_usual: bool

    @property
    def is_outlier(self) -> bool:
        """True where it took much longer than its like."""
        return self.times_median >= OUTLIER_FACTOR


@dataclass(frozen=True)
class StepKernel:
    """One kernel, by name and shape, in all steps of a kind.

    Attributes:
        phase: of the steps, as in `StepRow`.
        is_usual: of the steps.
        name: as recorded.
        grid_blocks: blocks of the grid.
        block_threads: threads of a block.
        count: how often it ran.
        total_ns: how long in all.
    """

    phase: str
    is_usual: bool
    name: str
    grid_blocks: int | None
    block_threads: int | None
    count: int
    total_ns: int


@dataclass(frozen=True)
class PhaseRow:
    """The steps of one phase: how many, and how their lengths are spread."""

    phase: str
    count: int
    mean_ns: int
    median_ns: int
    p99_ns: int
    longest_ns: int
    outlier_count: int


@dataclass(frozen=True)
class StepColumn:
    """Some neighbouring steps in one column of a chart: the longest of them, and whether any is an outlier."""

    column: int
    longest_ns: int
    is_outlier: bool


def phases(connection: duckdb.DuckDBPyConnection) -> tuple[PhaseRow, ...]:
    """Every phase, most steps first."""
    return tuple(PhaseRow(*row) for row in connection.execute(_PHASES, {"factor": OUTLIER_FACTOR}).fetchall())


def steps(connection: duckdb.DuckDBPyConnection, most: int) -> tuple[StepRow, ...]:
    """Steps in order of time; where there are more than `most`, the longest of them."""
    rows = [StepRow(*row) for row in connection.execute(_STEPS, {"most": most}).fetchall()]
    return tuple(sorted(rows, key=lambda row: row.start_ns))


def step_kernels(connection: duckdb.DuckDBPyConnection) -> tuple[StepKernel, ...]:
    """Kernels that began in the window, by the kind of step that launched them; those of no step are left out."""
    return tuple(StepKernel(*row) for row in connection.execute(_KERNELS).fetchall())


def hides_kernels(connection: duckdb.DuckDBPyConnection) -> bool:
    """True where CUDA graphs of the window were recorded as one row each, without their kernels."""
    return bool(connection.execute(_HIDDEN).fetchall())


def step_columns(connection: duckdb.DuckDBPyConnection, columns: int) -> tuple[StepColumn, ...]:
    """The steps in order as at most `columns` columns."""
    values = {"columns": columns, "factor": OUTLIER_FACTOR}
    return tuple(StepColumn(*row) for row in connection.execute(_COLUMNS, values).fetchall())


_ROW = """
annotated AS (
    SELECT source_id, pid, nvtx_range.start_ns + shift_ns AS start_ns, nvtx_range.end_ns + shift_ns AS end_ns,
        CASE WHEN contains(lower(text), 'prefill') THEN 'prefill' ELSE 'decode' END AS phase
    FROM nvtx_range JOIN timeline_source USING (source_id) JOIN text ON text_id = name_id
    WHERE nvtx_range.end_ns IS NOT NULL AND range_kind <> 'mark' AND regexp_matches(lower(text), 'prefill|decode')
),
placed AS (
    SELECT annotated.source_id, annotated.pid, annotated.start_ns, annotated.end_ns, phase,
        CASE WHEN annotated.start_ns < host_end_ns THEN step_id END AS step_id, step.end_ns AS before_end_ns
    FROM annotated ASOF LEFT JOIN step ON annotated.source_id = step.source_id AND annotated.pid = step.pid
        AND annotated.start_ns >= host_start_ns
),
said AS (
    -- a step that holds both is a prefill: the decode in it is the shorter part
    SELECT step_id, max(phase) AS phase FROM placed WHERE step_id IS NOT NULL GROUP BY step_id
),
covering AS (
    -- steps told by repeating work may begin within an annotation
    SELECT step_id, annotated.source_id, annotated.pid, annotated.start_ns, phase
    FROM step ASOF JOIN annotated ON annotated.source_id = step.source_id AND annotated.pid = step.pid
        AND host_start_ns >= annotated.start_ns
    WHERE annotated.end_ns >= host_start_ns + (host_end_ns - host_start_ns) // 2
),
outside AS (
    SELECT source_id, pid, start_ns, end_ns, phase, before_end_ns FROM placed
    WHERE step_id IS NULL AND phase = 'prefill'
        AND (source_id, pid, start_ns) NOT IN (SELECT source_id, pid, start_ns FROM covering)
),
-- it ends, as steps do, when the device is done with what it launched
worked AS (
    SELECT outside.source_id, outside.pid, outside.start_ns, max(op.end_ns) AS done_ns
    FROM (
        SELECT device_op.source_id, device_op.pid, device_op.end_ns,
            coalesce(host_call.start_ns, device_op.start_ns) AS called_ns
        FROM device_op LEFT JOIN launch USING (device_op_id) LEFT JOIN host_call USING (host_call_id)
    ) AS op
    ASOF JOIN outside ON op.source_id = outside.source_id AND op.pid = outside.pid AND called_ns >= outside.start_ns
    WHERE called_ns < outside.end_ns GROUP BY ALL
),
work AS (
    SELECT step_id, sum(op_count)::BIGINT AS op_count, sum(device_ns)::BIGINT AS device_ns
    FROM step_work GROUP BY step_id
),
found AS (
    SELECT step.source_id, step.step_id,
        coalesce(covering.phase, said.phase,
            CASE WHEN usual_step.step_id IS NULL THEN 'unusual' ELSE 'usual' END) AS phase,
        step.pid, step.start_ns, step.end_ns, host_start_ns, host_end_ns, coalesce(work.op_count, 0) AS op_count,
        coalesce(device_ns, 0) AS device_ns, usual_step.step_id IS NOT NULL AS is_usual
    FROM step LEFT JOIN covering USING (step_id) LEFT JOIN said USING (step_id)
        LEFT JOIN usual_step USING (step_id) LEFT JOIN work USING (step_id)
    UNION ALL
    SELECT source_id, NULL, phase, pid, greatest(start_ns, coalesce(before_end_ns, start_ns)),
        greatest(end_ns, coalesce(before_end_ns, end_ns), coalesce(done_ns, end_ns)), start_ns, end_ns, 0, 0, false
    FROM outside LEFT JOIN worked USING (source_id, pid, start_ns)
),
row AS (
    SELECT *, (end_ns - start_ns) / greatest(median(end_ns - start_ns) OVER (PARTITION BY phase), 1) AS times_median
    FROM found
)"""

_PHASES = f"""
WITH {_ROW}
SELECT phase, count(*), avg(end_ns - start_ns)::BIGINT, median(end_ns - start_ns)::BIGINT,
    quantile_cont(end_ns - start_ns, 0.99)::BIGINT, max(end_ns - start_ns), count(*) FILTER (times_median >= $factor)
FROM row GROUP BY phase ORDER BY count(*) DESC, phase
"""

_STEPS = f"""
WITH {_ROW}
SELECT step_id, phase, pid, start_ns, end_ns, op_count, device_ns, times_median, is_usual
FROM row ORDER BY end_ns - start_ns DESC, start_ns LIMIT $most
"""

_KERNELS = f"""
WITH {_ROW},
op AS (
    SELECT device_op.source_id, device_op.pid, device_op.name_id, grid_blocks, block_threads,
        device_op.end_ns - device_op.start_ns AS length_ns,
        coalesce(host_call.start_ns, device_op.start_ns) AS called_ns
    FROM device_op JOIN steady_window ON device_op.start_ns >= from_ns AND device_op.start_ns < until_ns
        LEFT JOIN launch USING (device_op_id) LEFT JOIN host_call USING (host_call_id)
    WHERE kind = 'kernel'
)
SELECT phase, is_usual, coalesce(text, '(unnamed)'), grid_blocks, block_threads, count(*), sum(length_ns)::BIGINT
FROM op ASOF JOIN row ON op.source_id = row.source_id AND op.pid = row.pid AND called_ns >= row.host_start_ns
    LEFT JOIN text ON text_id = name_id
WHERE called_ns < row.host_end_ns
GROUP BY ALL ORDER BY ALL
"""

_HIDDEN = """
SELECT 1 FROM device_op, steady_window WHERE kind = 'graph' AND start_ns >= from_ns AND start_ns < until_ns LIMIT 1
"""

_COLUMNS = f"""
WITH {_ROW},
numbered AS (
    SELECT end_ns - start_ns AS length_ns, times_median, row_number() OVER (ORDER BY start_ns) - 1 AS place,
        count(*) OVER () AS total
    FROM row
)
SELECT (place * least(total, $columns) // total)::INTEGER AS col, max(length_ns), bool_or(times_median >= $factor)
FROM numbered GROUP BY col ORDER BY col
"""
