"""Build the control plane if needed and print the directory its programs are in."""

from tests.cluster.controlplane.binaries import binaries

print(binaries())
