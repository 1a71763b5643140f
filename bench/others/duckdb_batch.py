"""The same windows by DuckDB over the archive's files. duckdb_batch FILES OUT"""

from __future__ import annotations

import json
import sys


def main(files: str, out: str) -> None:
    import duckdb

    duckdb.execute(
        f'COPY (SELECT time_bucket(INTERVAL 1 MINUTE, "at") AS window_start, shop, count(*) AS n, sum(amount) AS total '
        f'FROM (SELECT id, any_value(shop) AS shop, any_value(amount) AS amount, any_value("at") AS "at" '
        f"FROM read_parquet('{files}') GROUP BY id) GROUP BY ALL) TO '{out}' (FORMAT parquet)"
    )
    print(json.dumps({}))


if __name__ == "__main__":
    main(*sys.argv[1:])
