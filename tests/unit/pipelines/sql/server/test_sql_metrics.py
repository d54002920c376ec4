"""The metrics of the SQL server."""

from __future__ import annotations

from felice.pipelines.sql.server.metrics import Figures, page
from felice.pipelines.sql.server.persistent import ERROR, PAUSED, RUNNING, QueryState


def test_the_page() -> None:
    queries = {
        "CSAS_A_1": QueryState(RUNNING, None, 7, {"late": 2, "skipped": 1}),
        'CTAS_"B"_2': QueryState(ERROR, "a bad record", 3),
        "CSAS_C_3": QueryState(PAUSED),
    }
    lines = page(
        Figures(leads=True, commands=4, queries=queries, selects=2, prints=1, tables={"B": False})
    ).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "felice_sql_leads 1",
        "felice_sql_commands_total 4",
        'felice_sql_queries{state="running"} 1',
        'felice_sql_queries{state="paused"} 1',
        'felice_sql_queries{state="error"} 1',
        'felice_sql_query_failed{query="CSAS_A_1"} 0',
        'felice_sql_query_failed{query="CTAS_\\"B\\"_2"} 1',
        'felice_sql_query_failed{query="CSAS_C_3"} 0',
        'felice_sql_query_lag_records{query="CSAS_A_1"} 7',
        'felice_sql_query_lag_records{query="CTAS_\\"B\\"_2"} 3',
        'felice_sql_query_left_out_records_total{query="CSAS_A_1",reason="late"} 2',
        'felice_sql_query_left_out_records_total{query="CSAS_A_1",reason="skipped"} 1',
        'felice_sql_transient_queries{kind="select"} 2',
        'felice_sql_transient_queries{kind="print"} 1',
        'felice_sql_table_followed{table="B"} 0',
    ]
    assert lines[0] == "# HELP felice_sql_leads 1 if this server runs the queries."
    assert lines[1] == "# TYPE felice_sql_leads gauge"
