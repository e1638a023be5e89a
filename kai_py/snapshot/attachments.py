"""What a driver attaches to a node for a claim: the claim's volume, or the one made for it.

Volumes of the cloud plugins that Kubernetes once had in its own tree are attached by the CSI
drivers that replaced these plugins, and count against the limits of those drivers. No supported
kubelet has the plugins any more. Where the volume of a bound claim is gone, its class tells the
driver.

Source: kube-scheduler's NodeVolumeLimits plugin, and k8s.io/csi-translation-lib.
"""

from kai_py.api.records.core import Pod
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from kai_py.snapshot.volume_requirements import Attachment

AWS, AZURE, CINDER = "ebs.csi.aws.com", "disk.csi.azure.com", "cinder.csi.openstack.org"
GCE, PORTWORX = "pd.csi.storage.gke.io", "pxd.portworx.com"
DRIVERS = {
    "kubernetes.io/aws-ebs": AWS,
    "kubernetes.io/azure-disk": AZURE,
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/gce-pd": GCE,
    "kubernetes.io/portworx-volume": PORTWORX,
}
"""The CSI drivers of former plugins."""


def attachment(
    claim: PersistentVolumeClaim, bound: PersistentVolume | None, storage: StorageClass | None
) -> Attachment | None:
    """What is attached for a claim, None if nothing is; ``storage`` counts without a volume."""
    if bound is not None:
        return _attached(bound.spec)
    if storage is None or storage.provisioner in ("", NO_PROVISIONER):
        return None
    meta = claim.metadata
    driver = DRIVERS.get(storage.provisioner, storage.provisioner)
    return Attachment(driver, f"{meta.namespace}/{meta.name}")


def is_exclusive(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether no other pod uses the claim: it is the pod's, or a StatefulSet's for this pod."""
    owned = any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)
    return owned or claim.metadata.name.endswith(f"-{pod.metadata.name}")


def _attached(spec: PersistentVolumeSpec) -> Attachment | None:
    driver, volume = "", ""
    if spec.csi is not None:
        driver, volume = spec.csi.driver, spec.csi.volume_handle
    elif spec.aws_elastic_block_store is not None:
        driver, volume = AWS, spec.aws_elastic_block_store.volume_id
    elif spec.azure_disk is not None:
        driver, volume = AZURE, spec.azure_disk.disk_uri
    elif spec.cinder is not None:
        driver, volume = CINDER, spec.cinder.volume_id
    elif spec.gce_persistent_disk is not None:
        driver, volume = GCE, spec.gce_persistent_disk.pd_name
    elif spec.portworx_volume is not None:
        driver, volume = PORTWORX, spec.portworx_volume.volume_id
    return Attachment(driver, volume) if driver else None
