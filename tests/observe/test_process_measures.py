import asyncio
from contextlib import suppress

from prometheus_client import CollectorRegistry

from kai_py.observe.metrics import Metrics, measure_process
from kai_py.watch.mirror import KindStatus
from tests.watch import virtual_time


class Watches:
    """What is measured of a mirror and of its freshness."""

    permission = ""

    def status(self):
        return (
            KindStatus("Job", "batch/v1", True, 0, 0.0, "", (), missing_permission=self.permission),
        )

    def measure(self):
        return ()


def test_a_permission_that_is_taken_away_and_given_back_is_told():
    metrics, watches = Metrics(CollectorRegistry()), Watches()

    def told():
        return metrics.registry.get_sample_value("kai_py_kind_refused", {"kind": "jobs.batch"})

    async def main():
        task = asyncio.ensure_future(measure_process(metrics, watches, watches))
        for watches.permission, expected in (("", None), ("jobs.batch", 1.0), ("", 0.0)):
            await asyncio.sleep(10)
            assert told() == expected
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    virtual_time.run(main())
