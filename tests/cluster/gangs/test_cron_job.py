"""A CronJob's Jobs are gangs, with the real controllers in between."""

import time

from kai_py.api.times import format_time
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import IN_TEAM_A, job, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

LONGER_THAN_A_YEAR = 400 * 86_400.0
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


async def test_each_job_of_a_cron_job_starts_whole_or_waits_whole(real: Cluster) -> None:
    view = View(real.api)
    await install_definitions(real.api)
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=4)), scheduling(real):
        await real.submit(queue(), cron_job("fits", 3), cron_job("waits", 2))
        await is_due(real, "fits")
        await view.wait_bound("fits", 3, within=30.0)
        await is_due(real, "waits")
        await view.wait_pending("waits", 2, reason="Unschedulable", within=30.0)


def cron_job(name: str, size: int) -> Document:
    """Starts a Job of ``size`` parallel pods at midnight of new year."""
    made = job(name, size, pod_spec(gpus=1), annotations={})
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(IN_TEAM_A)},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": made["spec"]}},
    }


async def is_due(real: Cluster, name: str) -> None:
    """Let the controller find that it missed the last new year."""
    status = {"status": {"lastScheduleTime": format_time(time.time() - LONGER_THAN_A_YEAR)}}
    await real.api.patch(f"{CRON_JOBS}/{name}/status", status)
