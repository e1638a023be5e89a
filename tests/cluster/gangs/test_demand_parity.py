"""Volumes, ports and resources, asked of kube-scheduler's own filter plugins and of ours."""

import pytest

from tests.cluster.gangs.demanding_clusters import random_cluster
from tests.cluster.gangs.filter_oracle import judge

CLUSTERS = 2_000


@pytest.mark.slow
@pytest.mark.cluster
def test_our_filters_pass_the_nodes_of_kube_schedulers_plugins_for_what_pods_ask():
    judge(random_cluster, range(200))


@pytest.mark.nightly
@pytest.mark.cluster
def test_our_filters_pass_the_nodes_of_kube_schedulers_plugins_for_what_many_pods_ask():
    judge(random_cluster, range(200, 200 + CLUSTERS))
