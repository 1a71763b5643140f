"""Whether an engine's rows are right, by the rides that were sent and by nothing that the engine says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found: `wrong` is empty where the answer is right, else it says what is not."""

    wrong: str
    rows: int
    late: int  # rides that the engine left out


def judge(rows: pa.Table, truth: Path) -> Answer:
    """Hold rows (w, k, n, amount) against the truth; what is missing must have been late for everyone.

    An engine may count a late ride, but not leave out one that came in time, count one twice or make a row up.
    """
    expected = duckdb.read_parquet(str(truth))  # noqa: F841
    found = duckdb.sql(
        """
        WITH joined AS (
            SELECT e.n AS en, e.amount AS ea, e.late, r.*
            FROM rows r FULL JOIN expected e ON r.w = e.w AND r.k = e.k
        )
        SELECT count(n), coalesce(sum(en), 0)::BIGINT - coalesce(sum(n), 0)::BIGINT,
               count(*) FILTER (WHERE n IS NOT NULL AND en IS NULL),
               count(*) FILTER (WHERE n > en),
               count(*) FILTER (WHERE n = en AND abs(amount - ea) > 1e-9 * greatest(1, abs(ea))),
               count(*) FILTER (WHERE en - coalesce(n, 0) > late),
               (SELECT count(*) FROM (SELECT w, k FROM rows GROUP BY w, k HAVING count(*) > 1))
        FROM joined
        """
    ).fetchall()[0]
    count, late, *faults = (int(value) for value in found)
    words = ("unknown rows", "rows that count too much", "wrong sums", "rows that lack what was not late", "doubles")
    wrong = ", ".join(f"{number} {word}" for number, word in zip(faults, words, strict=True) if number)
    return Answer(wrong=wrong, rows=count, late=late)
