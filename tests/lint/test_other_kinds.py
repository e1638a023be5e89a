"""Objects beside the workloads in manifests as projects publish them: no errors that are none."""

import pytest

from tests.lint.manifests import POD, errors, fixed, hints, indented

RBAC = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: '{}'}}\n"
LIMITS = """\
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: default}
spec: {limits: [{type: Container, default: {cpu: 1}}]}
"""


def test_the_limits_of_a_limit_range_are_a_list():
    assert errors(LIMITS) == []
    pod = LIMITS.replace("LimitRange", "Pod")
    wrong = "containers: [{name: a, image: i, resources: {limits: [1]}}]"
    [error] = errors(pod.replace("limits: [{type: Container, default: {cpu: 1}}]", wrong))
    assert "spec.containers[0].resources.limits: must be a mapping of fields" in error


@pytest.mark.parametrize(
    ("name", "valid"),
    [("system:node", True), ("Reader", True), ("a/b", False), ("a%b", False), ("..", False)],
)
def test_names_of_roles_are_parts_of_paths(name, valid):
    assert (errors(RBAC.format(name)) == []) == valid


def test_other_names_are_names_of_domains():
    [error] = errors("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'system:node'}\n")
    assert "is not a valid name" in error


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
        ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"),
        ("kubeadm.k8s.io/v1beta4", "ClusterConfiguration"),
        ("kind.x-k8s.io/v1alpha4", "Cluster"),
    ],
)
def test_settings_of_programs_are_no_objects(api_version, kind):
    assert errors(f"apiVersion: {api_version}\nkind: {kind}\nresources: [a.yaml]\n") == []
    [error] = errors(f"apiVersion: example.com/v1\nkind: {kind}\nspec: {{}}\n")
    assert "has no name" in error


def test_a_list_of_one_kind_is_checked_like_its_objects():
    listed = "apiVersion: v1\nkind: ConfigMapList\nitems:\n"
    assert errors(f"{listed}- metadata: {{name: a}}\n") == []
    [error] = errors(f"{listed}- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: A}}}}\n")
    assert "'A' is not a valid name" in error


@pytest.mark.parametrize(
    ("of_pod", "of_template", "found"),
    [
        ("", "", True),
        ("", "namespace: default", True),
        ("namespace: default", "", True),
        ("", "namespace: team", False),
        ("namespace: team", "namespace: default", False),
    ],
)
def test_an_object_without_a_namespace_is_taken_to_be_in_that_of_kubectl(
    of_pod, of_template, found
):
    text = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p, {of_pod}}}
spec:
  schedulerName: kai-scheduler
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: t}}]
  containers: [{{name: a, image: i, resources: {{claims: [{{name: gpu}}]}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: t, {of_template}}}
spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}}}
"""
    assert any("they must be in one" in each for each in errors(text)) != found


COMPUTE_DOMAIN = """\
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: d, namespace: n}
spec: {numNodes: 2, channel: {resourceClaimTemplate: {name: channel}}}
---
"""


def test_a_compute_domain_brings_the_claim_template_that_it_names():
    pod = POD + indented(
        """\
        resourceClaims: [{name: c, resourceClaimTemplateName: channel}]
        containers: [{name: a, resources: {claims: [{name: c}]}}]
        """,
        2,
    )
    missing = "ResourceClaimTemplate channel is not among these manifests"
    assert any(missing in hint for hint in hints(pod))
    assert not any(missing in hint for hint in hints(COMPUTE_DOMAIN + pod))
    other = COMPUTE_DOMAIN.replace("name: channel", "name: other")
    assert any(missing in hint for hint in hints(other + pod))
    elsewhere = COMPUTE_DOMAIN.replace("namespace: n", "namespace: m")
    assert any("they must be in one" in error for error in errors(elsewhere + pod))


RAY_CLUSTER = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r, namespace: n, labels: {kai.scheduler/queue: q}}
spec: {headGroupSpec: {template: {spec: {containers: [{name: a, image: i}]}}}}
"""


def test_the_operator_may_set_the_scheduler_of_ray_clusters():
    assert errors(RAY_CLUSTER) == []
    assert any("unless KubeRay sets it" in hint for hint in hints(RAY_CLUSTER))
    [cluster] = fixed(RAY_CLUSTER)
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    assert head["schedulerName"] == "kai-scheduler"
