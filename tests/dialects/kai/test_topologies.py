"""KAI's Topology: levels from coarse to fine, as the snapshot offers them to gangs."""

from tests.dialects.feeding import Cluster

TOPOLOGY = """
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: datacentre}
spec:
  levels:
  - {nodeLabel: example.com/block}
  - {nodeLabel: example.com/rack, alias: rack}
  - {nodeLabel: kubernetes.io/hostname}
"""


def test_levels_come_and_go_with_the_object():
    cluster = Cluster(TOPOLOGY)
    labels = ("example.com/block", "example.com/rack", "kubernetes.io/hostname")
    assert cluster.snapshot().topologies == {"datacentre": labels}
    assert cluster.remove(TOPOLOGY).snapshot().topologies == {}
