"""Runs a Python function over the rows of each key, in order: many small groups in one pass of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame

Follow = Callable[[pd.DataFrame], pd.DataFrame]


def follow_groups(rows: DataFrame, keys: Sequence[str], order: Sequence[str], follow: Follow, shape: str) -> DataFrame:
    """What `follow` gives for each group; `applyInPandas` would pay a millisecond for each of them."""

    def each(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        rest: pd.DataFrame | None = None  # of the group that the next frame may go on with
        for frame in frames:
            whole = frame if rest is None else pd.concat([rest, frame], ignore_index=True)
            starts = group_starts(whole, keys)
            done, rest = whole.iloc[: starts[-1]], whole.iloc[starts[-1] :].reset_index(drop=True)
            if len(done):
                yield followed(done, starts, follow)
        if rest is not None:
            yield followed(rest, np.array([0]), follow)

    each.__annotations__ = {"frames": Iterator[pd.DataFrame], "return": Iterator[pd.DataFrame]}
    return rows.repartition(*keys).sortWithinPartitions(*keys, *order).mapInPandas(each, shape)


def followed(rows: pd.DataFrame, starts: np.ndarray[tuple[int], np.dtype[np.int64]], follow: Follow) -> pd.DataFrame:
    begins = [int(start) for start in starts if start < len(rows)]
    return pd.concat(
        [follow(rows.iloc[a:b]) for a, b in zip(begins, [*begins[1:], len(rows)], strict=True)], ignore_index=True
    )


def group_starts(rows: pd.DataFrame, keys: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where a row's key is not that of the row before; nulls are one key, as Spark groups them."""
    changed = np.zeros(len(rows), dtype=bool)
    for name in keys:
        now, before = rows[name], rows[name].shift()
        changed |= ~((now == before) | (now.isna() & before.isna())).fillna(False).to_numpy(dtype=bool)
    changed[0] = True
    return np.flatnonzero(changed)
