"""What `kai-py install` prints hangs together; that a server takes it is tested in cluster/."""

import re

import pytest
from typer.testing import CliRunner

from kai_py.api.gpu_reservation import RESERVATION_ACCOUNT
from kai_py.api.gpu_share import RESERVATION
from kai_py.cli import main
from kai_py.config import parse_configuration
from kai_py.deploy.objects import SHARING
from kai_py.deploy.parts import POD_SECURITY
from kai_py.deploy.permissions import (
    cluster_rules,
    reader_objects,
    webhook_cluster_grants,
    webhook_grants,
)
from kai_py.watch.kinds import WATCHED
from tests.support import yaml_text
from tests.support.repository import ROOT


def printed(*arguments):
    command = ["manifests", "--image", "registry.example/kai-py:1", *arguments]
    result = CliRunner().invoke(main.app, command, obj=main.Invocation())
    assert result.exit_code == 0, result.output
    return yaml_text.read_all(result.output)


def of_kind(documents, kind):
    """The one of the scheduler itself, not of its reservation pods or of readers."""
    readers = {each["metadata"]["name"] for each in reader_objects("kai-py", "")}
    (found,) = [
        each
        for each in documents
        if each["kind"] == kind
        and RESERVATION not in each["metadata"].values()
        and each["metadata"]["name"] not in readers
    ]
    return found


def test_a_namespace_comes_before_what_is_in_it():
    documents = printed("--namespace", "gpu")
    spaces = {e["metadata"]["name"]: i for i, e in enumerate(documents) if e["kind"] == "Namespace"}
    assert set(spaces) == {"gpu", RESERVATION}
    for name, at in spaces.items():
        inside = [i for i, e in enumerate(documents) if e["metadata"].get("namespace") == name]
        assert min(inside) > at


def test_bindings_name_the_account_and_roles_that_exist():
    documents = printed("--namespace", "gpu")
    account = of_kind(documents, "ServiceAccount")["metadata"]
    pod = of_kind(documents, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    for kind in ("ClusterRole", "Role"):
        binding = of_kind(documents, f"{kind}Binding")
        assert binding["roleRef"]["name"] == of_kind(documents, kind)["metadata"]["name"]
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_reservation_pods_and_the_scheduler_have_their_rights_in_one_namespace_only(tmp_path):
    documents = printed("--namespace", "gpu")
    inside = [each for each in documents if each["metadata"].get("namespace") == RESERVATION]
    roles = {each["metadata"]["name"]: each for each in inside if each["kind"] == "Role"}
    subjects = {
        each["roleRef"]["name"]: each["subjects"]
        for each in inside
        if each["kind"] == "RoleBinding"
    }
    scheduler = {"kind": "ServiceAccount", "name": "kai-py", "namespace": "gpu"}
    itself = {"kind": "ServiceAccount", "name": RESERVATION_ACCOUNT, "namespace": RESERVATION}
    assert subjects == {SHARING: [scheduler], RESERVATION_ACCOUNT: [itself]}
    assert set(roles) == set(subjects)
    assert RESERVATION_ACCOUNT in [e["metadata"]["name"] for e in inside if "rules" not in e]
    (space,) = [each for each in documents if each["metadata"]["name"] == RESERVATION]
    assert space["metadata"]["labels"][POD_SECURITY] == "baseline"
    (container,) = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--reservation-image=registry.example/kai-py:1" in container["args"]
    path = tmp_path / "kai.yaml"
    path.write_text("gpuSharing: {isolation: none}\n")
    without = printed("--config", str(path))
    assert not [each for each in without if RESERVATION in each["metadata"].values()]


def test_the_configuration_inside_is_the_one_that_was_given(tmp_path):
    path = tmp_path / "kai.yaml"
    path.write_text("schedulerName: gpu-scheduler\ncyclePeriod: 250ms\nhttp: {port: 9090}\n")
    documents = printed("--config", str(path), "--namespace", "gpu")
    (name, text), *_ = of_kind(documents, "ConfigMap")["data"].items()
    inside = parse_configuration(text)
    assert (inside.scheduler_name, inside.cycle_period) == ("gpu-scheduler", 0.25)
    assert inside.leader_election.namespace == "gpu"
    assert of_kind(documents, "Role")["metadata"]["namespace"] == "gpu"
    (container,) = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1].endswith(f"/{name}")
    assert container["ports"][0]["containerPort"] == 9090
    assert of_kind(documents, "Service")["spec"]["ports"][0]["port"] == 9090


def test_queues_are_closed_to_other_namespaces_unless_the_configuration_opens_them(tmp_path):
    documents = printed()
    (container,) = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--closed-queues" in container["args"]
    path = tmp_path / "kai.yaml"
    for written in (True, False):
        path.write_text(f"openQueues: {str(written).lower()}\n")
        (text,) = of_kind(printed("--config", str(path)), "ConfigMap")["data"].values()
        assert parse_configuration(text).open_queues is written


def test_a_changed_configuration_changes_the_pods(tmp_path):
    path = tmp_path / "kai.yaml"
    path.write_text("cyclePeriod: 250ms\n")
    first, second = (
        of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["annotations"]
        for documents in (printed(), printed("--config", str(path)))
    )
    assert first != second


def test_selectors_select_the_pods():
    documents = printed()
    deployment = of_kind(documents, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"].items()
    for selector in (
        deployment["selector"]["matchLabels"],
        of_kind(documents, "Service")["spec"]["selector"],
        of_kind(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels


def test_the_network_lets_in_what_is_served_and_restricts_no_way_out():
    documents = printed("--webhook")
    pods = {each["metadata"]["name"]: each["spec"]["template"] for each in documents
            if each["kind"] == "Deployment"}  # fmt: skip
    policies = [each for each in documents if each["kind"] == "NetworkPolicy"]
    assert {each["metadata"]["name"] for each in policies} == pods.keys()
    for policy in policies:
        pod, spec = pods[policy["metadata"]["name"]], policy["spec"]
        assert spec["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
        assert spec["policyTypes"] == ["Ingress"], "the API server and Prometheus are reached"
        (rule,) = spec["ingress"]
        assert "from" not in rule, "kubelets, Prometheus and the API server come from anywhere"
        (container,) = pod["spec"]["containers"]
        served = {port["name"] for port in container["ports"]}
        assert {port["port"] for port in rule["ports"]} == served
        probes = {
            (probe.get("httpGet") or probe["tcpSocket"])["port"]
            for kind in ("livenessProbe", "readinessProbe")
            if (probe := container.get(kind))
        }
        assert probes <= served


def test_pods_are_restricted_spread_probed_and_important():
    documents = printed("--webhook")
    for deployment in (each for each in documents if each["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert deployment["spec"]["replicas"] == 2
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (term,) = pod["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        apart = term["podAffinityTerm"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert apart["labelSelector"]["matchLabels"] == labels
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["readinessProbe"]
    (scheduler,) = [each for each in documents if each["metadata"]["name"] == "kai-py"
                    and each["kind"] == "Deployment"]  # fmt: skip
    (container,) = scheduler["spec"]["template"]["spec"]["containers"]
    paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    assert paths == ["/healthz", "/readyz"]


def test_the_placeholder_of_the_readme_is_taken_as_it_stands():
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"kai-py (install --image \S+) \|", readme)
    result = CliRunner().invoke(main.app, command.split(), obj=main.Invocation())
    assert result.exit_code == 0, result.output


def test_every_rule_of_a_role_says_why_it_is_needed():
    command = ["install", "--image", "i"]
    text = CliRunner().invoke(main.app, command, obj=main.Invocation()).output
    for kind in ("ClusterRole", "Role"):
        roles = [each for each in text.split("---\n") if f"\nkind: {kind}\n" in each]
        assert roles
        for role in roles:
            lines = role.splitlines()
            reasons = [lines[at - 1] for at, line in enumerate(lines) if line == "- apiGroups:"]
            assert len(reasons) == len(yaml_text.read(role)["rules"])
            assert all(reason.startswith("# ") and reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize("kind", WATCHED, ids=lambda kind: f"{kind.plural}.{kind.group}")
def test_what_is_mirrored_may_be_read(kind):
    assert any(
        kind.group in rule["apiGroups"]
        and kind.plural in rule["resources"]
        and {"get", "list", "watch"} <= set(rule["verbs"])
        for rule in cluster_rules()
    )


def test_only_what_it_makes_may_be_deleted_and_no_wildcard_is_asked_for():
    made = {"resourceclaims", "provisioningrequests", "podtemplates"}
    deleting = [rule for rule in cluster_rules() if "delete" in rule["verbs"]]
    assert {each for rule in deleting for each in rule["resources"]} == made
    assert all("create" in rule["verbs"] for rule in deleting)
    rules = [rule for rule in cluster_rules() if rule not in deleting]
    for rule in rules:
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not words & {"*", "delete", "deletecollection", "secrets", "escalate", "bind"}


@pytest.mark.parametrize(
    ("right", "resources"),
    [
        ("localVolumes", {("persistentvolumes", "patch")}),
        (
            "provisioning",
            {
                ("provisioningrequests", "create"),
                ("provisioningrequests", "delete"),
                ("podtemplates", "create"),
                ("podtemplates", "delete"),
                ("podtemplates", "get"),
            },
        ),
    ],
)
def test_a_right_that_is_left_out_is_not_granted(right, resources):
    def granted(*arguments):
        role = of_kind(printed(*arguments), "ClusterRole")
        return {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert granted() - granted("--without", right) == resources


def test_webhooks_are_left_out_unless_asked_for():
    assert not any("webhook" in each["metadata"]["name"] for each in printed())
    names = {each["metadata"]["name"] for each in printed("--webhook")}
    assert names >= {"kai-py", "kai-py-webhook"}


def test_webhooks_never_stand_in_the_way_and_are_found_at_their_service():
    documents = printed("--webhook", "--namespace", "gpu")
    (service,) = webhook_of(documents, "Service")
    (deployment,) = webhook_of(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (configuration,) = webhook_of(documents, kind)
        for each in configuration["webhooks"]:
            assert each["failurePolicy"] == "Ignore"
            found = each["clientConfig"]["service"]
            assert (found["name"], found["namespace"]) == (service["metadata"]["name"], "gpu")


def webhook_of(documents, kind):
    return [
        each
        for each in documents
        if each["kind"] == kind and each["metadata"]["name"] == "kai-py-webhook"
    ]


def test_the_webhooks_write_only_what_is_theirs_by_name():
    for rule in [each.rule for each in (*webhook_cluster_grants(), *webhook_grants())]:
        writes = set(rule["verbs"]) - {"get", "list", "watch"}
        made = rule["resources"] == ["secrets"] and rule["verbs"] == ["create"]
        assert made or not writes or rule["resourceNames"] == ["kai-py-webhook"]
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
