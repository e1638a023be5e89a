"""The frameworks whose gangs need code, by the name that rules use."""

from kai_py.grouping.frameworks.aibrix import ROLE_SET
from kai_py.grouping.frameworks.dask import DASK_CLUSTER
from kai_py.grouping.frameworks.flink import FLINK_DEPLOYMENT
from kai_py.grouping.frameworks.job import DEPLOYMENT, JOB, STATEFUL_SET
from kai_py.grouping.frameworks.jobset import JOB_SET
from kai_py.grouping.frameworks.leader_worker_set import LEADER_WORKER_SET
from kai_py.grouping.frameworks.ray import RAY_CLUSTER, RAY_JOB
from kai_py.grouping.frameworks.spark import SPARK_APPLICATION
from kai_py.grouping.frameworks.training_jobs import MPI_JOB, PYTORCH_JOB
from kai_py.grouping.frameworks.volcano_job import VOLCANO_JOB

FRAMEWORKS = {
    "Job": JOB,
    "JobSet": JOB_SET,
    "LeaderWorkerSet": LEADER_WORKER_SET,
    "MPIJob": MPI_JOB,
    "PyTorchJob": PYTORCH_JOB,
    "RayCluster": RAY_CLUSTER,
    "RayJob": RAY_JOB,
    "SparkApplication": SPARK_APPLICATION,
    "RoleSet": ROLE_SET,
    "FlinkDeployment": FLINK_DEPLOYMENT,
    "DaskCluster": DASK_CLUSTER,
    "Deployment": DEPLOYMENT,
    "StatefulSet": STATEFUL_SET,
    "VolcanoJob": VOLCANO_JOB,
}
