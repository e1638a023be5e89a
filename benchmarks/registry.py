"""Which rows are there?"""

from benchmarks.api.rows import api_benchmarks
from benchmarks.core.rows import core_benchmarks
from benchmarks.dashboard.rows import dashboard_benchmarks
from benchmarks.dra.rows import dra_benchmarks
from benchmarks.fairness.rows import fairness_benchmarks
from benchmarks.files.rows import files_benchmarks
from benchmarks.openb.rows import openb_benchmarks
from benchmarks.row import Benchmark
from benchmarks.scheduler_perf.rows import scheduler_perf_benchmarks
from benchmarks.watch.rows import watch_benchmarks


def benchmarks() -> list[Benchmark]:
    """Every row, in the order of the table."""
    return [
        *api_benchmarks(),
        *scheduler_perf_benchmarks(),
        *watch_benchmarks(),
        *files_benchmarks(),
        *core_benchmarks(),
        *dra_benchmarks(),
        *openb_benchmarks(),
        *fairness_benchmarks(),
        *dashboard_benchmarks(),
    ]


def chosen(only: list[str]) -> list[Benchmark]:
    """The rows whose ``part/name`` contains one of the texts; all of them without any."""
    return [each for each in benchmarks() if not only or any(text in each.key for text in only)]
