"""Helm renders and lints the chart as intended."""

import json
import shutil

import pytest
import yaml

from kai_py.api.settings import WebhookConfig
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.deploy.objects import NAME, Installation, manifests
from kai_py.deploy.parts import CONFIGURATION_FILE
from kai_py.deploy.permissions import Right, cluster_rules
from tests.deploy.helm import built_once, helm, render
from tests.support import yaml_text
from tests.support.repository import CHART


def documents(done):
    assert done.returncode == 0, done.stderr
    return [each for each in yaml_text.read_all(done.stdout) if each]


def without_nothing(document):
    """Helm writes empty values that the plain manifests leave out."""
    if isinstance(document, dict):
        left = {key: without_nothing(value) for key, value in document.items()}
        return {key: value for key, value in left.items() if value not in ({}, [], None)}
    if isinstance(document, list):
        return [without_nothing(item) for item in document]
    return document


def comparable(document):
    document = without_nothing(document)
    if document["kind"] == "ConfigMap" and CONFIGURATION_FILE in document["data"]:
        document["data"] = yaml_text.read(document["data"][CONFIGURATION_FILE])
    if document["kind"] == "Deployment":
        del document["spec"]["template"]["metadata"]["annotations"]
    return document


def named(found):
    return {(each["kind"], each["metadata"]["name"]): comparable(each) for each in found}


def _place(each):
    kind = each["kind"]
    return kind, each["metadata"]["name"] if kind == "Namespace" else ""


@built_once
def test_helm_renders_what_install_prints():
    wanted = Installation(
        image="registry.example/kai-py:1",
        namespace="gpu",
        replicas=2,
        configuration=Configuration(
            leader_election=LeaderElectionConfig(namespace="gpu"),
            webhook=WebhookConfig(namespace="gpu"),
        ),
        monitoring=True,
        webhook=True,
    )
    printed = [each for each in manifests(wanted) if _place(each) != ("Namespace", "gpu")]
    for document in printed:
        if document["kind"] == "CustomResourceDefinition":
            # Kept when the release is deleted.
            document["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    switches = dict.fromkeys(("serviceMonitor", "rules", "dashboards"), True)
    values = {"image": wanted.image, "monitoring": switches, "webhook": {"enabled": True}}
    assert named(documents(render(CHART, "gpu", json.dumps(values)))) == named(printed)


@built_once
def test_helm_lints_the_chart():
    values = {"image": "i", "webhook": {"enabled": True}, "withKaiApi": True}
    done = helm("lint", "--strict", CHART, "--values=-", values=json.dumps(values))
    assert done.returncode == 0, done.stdout


def without_annotations(found):
    for each in found:
        each["metadata"].pop("annotations", None)
    return found


@built_once
def test_kais_api_comes_with_its_rules():
    wanted = Installation(
        image="i",
        namespace="gpu",
        replicas=2,
        configuration=Configuration(
            rules="kai", leader_election=LeaderElectionConfig(namespace="gpu")
        ),
        kai_api=True,
    )
    own = {"CustomResourceDefinition", "PriorityClass", "Queue", "ConfigMap"}
    printed = [each for each in manifests(wanted) if each["kind"] in own]
    found = documents(render(CHART, "gpu", json.dumps({"image": "i", "withKaiApi": True})))
    rendered = without_annotations([each for each in found if each["kind"] in own])
    assert named(rendered) == named(printed)
    native = {"image": "i", "withKaiApi": True, "config": {"rules": "native"}}
    found = documents(render(CHART, "gpu", json.dumps(native)))
    (configuration,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert "rules: native" in configuration["data"][CONFIGURATION_FILE]


@built_once
def test_values_reach_their_objects():
    values = {
        "image": "i",
        "replicas": 3,
        "resources": {"limits": {"memory": "4Gi"}},
        "priorityClassName": "ours",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
        "networkPolicy": False,
        "config": {"http": {"port": 9090}, "fairShare": {"halfLife": "24h"}},
    }
    found = documents(render(CHART, "gpu", json.dumps(values)))
    kinds = {each["kind"]: each for each in found}
    assert not {"NetworkPolicy", "ServiceMonitor", "PrometheusRule"} & set(kinds)
    assert kinds["Deployment"]["spec"]["replicas"] == 3
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == values["resources"]["limits"]
    assert container["ports"][0]["containerPort"] == 9090
    assert pod["priorityClassName"] == "ours"
    for name in ("nodeSelector", "tolerations", "imagePullSecrets"):
        assert pod[name] == values[name]
    assert kinds["Service"]["spec"]["ports"][0]["port"] == 9090
    config = yaml_text.read(kinds["ConfigMap"]["data"][CONFIGURATION_FILE])
    assert config == {**values["config"], "leaderElection": {"namespace": "gpu"}}


@built_once
def test_what_operators_set_elsewhere_reaches_the_pods():
    secret = {"name": "token", "secret": {"secretName": "token"}}
    values = {
        "image": "i",
        "webhook": {"enabled": True},
        "env": [{"name": "HTTPS_PROXY", "value": "proxy:3128"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [secret],
        "extraVolumeMounts": [{"name": "token", "mountPath": "/token"}],
        "extraArgs": ["--log-level=debug"],
        "podAnnotations": {"a/b": "c: d"},
        "podLabels": {"team": "x"},
        "serviceAccountAnnotations": {"iam/role": "r"},
        "affinity": {"nodeAffinity": {}},
    }
    found = documents(render(CHART, "gpu", json.dumps(values)))
    deployments = [each for each in found if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        template = deployment["spec"]["template"]
        assert template["metadata"]["annotations"]["a/b"] == "c: d"
        assert template["metadata"]["labels"]["team"] == "x"
        pod = template["spec"]
        (container,) = pod["containers"]
        assert (container["env"], container["envFrom"]) == (values["env"], values["envFrom"])
        assert container["volumeMounts"][-1] == values["extraVolumeMounts"][0]
        assert pod["volumes"][-1] == secret
        assert pod["affinity"] == values["affinity"]
        has_arguments = container["args"][-1] == "--log-level=debug"
        assert has_arguments is (deployment["metadata"]["name"] == "kai-py")
    accounts = [each for each in found if each["kind"] == "ServiceAccount"]
    annotated = [each["metadata"].get("annotations") for each in accounts]
    assert annotated.count({"iam/role": "r"}) == 2


@built_once
def test_the_dashboard_may_have_an_address_outside():
    values = {
        "image": "i",
        "monitoring": {"podMonitor": True},
        "ingress": {"enabled": True, "host": "kai.example", "className": "nginx"},
        "route": {"enabled": True, "hostnames": ["kai.example"], "parentRefs": [{"name": "gw"}]},
    }
    kinds = {each["kind"]: each for each in documents(render(CHART, "gpu", json.dumps(values)))}
    assert kinds["Ingress"]["spec"]["ingressClassName"] == "nginx"
    assert kinds["Ingress"]["spec"]["rules"][0]["host"] == "kai.example"
    assert kinds["HTTPRoute"]["spec"]["parentRefs"] == [{"name": "gw"}]
    assert kinds["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"


@built_once
def test_alerts_link_their_runbooks_where_the_pages_are_served():
    def annotations(**values):
        text = render(CHART, "gpu", json.dumps({"image": "i", "monitoring": values}))
        (rules,) = [each for each in documents(text) if each["kind"] == "PrometheusRule"]
        return next(rule["annotations"] for group in rules["spec"]["groups"]
                for rule in group["rules"] if rule.get("alert") == "KaiPyNoLeader")  # fmt: skip

    assert annotations(rules=True)["runbook"] == "runbooks/KaiPyNoLeader.html"
    linked = annotations(rules=True, runbookURL="https://docs.example/kai/")
    assert linked["runbook_url"] == "https://docs.example/kai/KaiPyNoLeader.html"
    assert "runbook" not in linked


@built_once
def test_the_definition_of_queues_is_upgraded_unless_it_is_left_to_others():
    def defined(**values):
        found = documents(render(CHART, "gpu", json.dumps({"image": "i", **values})))
        return [each["metadata"]["name"] for each in found
                if each["kind"] == "CustomResourceDefinition"]  # fmt: skip

    assert defined() == ["queues.scheduling.kai.io"]
    assert defined(crds={"install": False}) == []


@built_once
@pytest.mark.parametrize("groups_are_there", [False, True])
def test_values_of_an_earlier_release_may_be_reused(groups_are_there, tmp_path):
    """With --reuse-values Helm has the values of the earlier chart in place of this one's."""
    shutil.copytree(CHART, tmp_path / "chart")
    values = yaml_text.read((CHART / "values.yaml").read_text())
    groups = {name: {} for name, value in values.items() if value and isinstance(value, dict)}
    kept = {name: each for name, each in groups.items() if groups_are_there and name != "resources"}
    (tmp_path / "chart" / "values.yaml").write_text(yaml.safe_dump(kept))
    for given in ({}, {"networkPolicy": False, "rights": {"provisioning": False}}):
        text = json.dumps({"image": "i", **given})
        reused, plain = render(tmp_path / "chart", "gpu", text), render(CHART, "gpu", text)
        assert named(documents(reused)) == named(documents(plain))


def references(each):
    """Kind and name of what an object of the chart refers to."""
    spec = each.get("spec", {})
    if role := each.get("roleRef"):
        yield role["kind"], role["name"]
    yield from ((it["kind"], it["name"]) for it in each.get("subjects", ()) if "namespace" in it)
    if policy := spec.get("policyName"):
        yield "ValidatingAdmissionPolicy", policy
    for rule in spec.get("rules", ()) if each["kind"] in ("Ingress", "HTTPRoute") else ():
        yield from (("Service", it["name"]) for it in rule.get("backendRefs", ()))
        for path in rule.get("http", {}).get("paths", ()):
            yield "Service", path["backend"]["service"]["name"]
    if each["kind"] == "Deployment":
        pod = spec["template"]["spec"]
        yield "ServiceAccount", pod["serviceAccountName"]
        maps = [it["configMap"]["name"] for it in pod["volumes"] if "configMap" in it]
        yield from (("ConfigMap", name) for name in maps)


@built_once
def test_objects_may_have_another_name():
    on = {"enabled": True}
    monitoring = dict.fromkeys(("serviceMonitor", "podMonitor", "rules", "dashboards"), True)
    values = {"image": "i", "ingress": on, "route": on, "nodePools": ["west"], "webhook": on}
    values |= {"monitoring": monitoring, "fullnameOverride": "gangs"}
    found = documents(render(CHART, "gpu", json.dumps(values)))
    names = {(each["kind"], each["metadata"]["name"]) for each in found}
    kept = {name for _, name in names if name.startswith("kai-py")}
    assert kept == {"kai-py-webhook", "kai-py-gpu-reservation"}
    referred = {reference for each in found for reference in references(each)}
    assert len(referred) > 15
    assert {it for it in referred if it[0] != "Group"} <= names
    [proxy] = [
        each
        for each in found
        if (each["kind"], each["metadata"]["name"]) == ("Role", "gangs-proxy")
    ]
    assert proxy["rules"][0]["resourceNames"] == ["gangs", "gangs:http", "http:gangs:http"]
    policies = [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    assert all("serviceaccount:gpu:gangs'" in json.dumps(each) for each in policies)


@built_once
def test_monitoring_has_the_labels_that_prometheus_selects():
    labels = {"release": "prometheus"}
    switches = dict.fromkeys(("serviceMonitor", "podMonitor", "rules"), True)
    values = {"image": "i", "monitoring": {**switches, "labels": labels}}
    found = documents(render(CHART, "gpu", json.dumps(values)))
    kinds = {each["kind"]: each["metadata"].get("labels", {}) for each in found}
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert kinds[kind].items() >= labels.items()


@built_once
def test_each_further_node_pool_has_a_deployment_of_its_own():
    values = {"image": "i", "nodePools": ["west", "east"]}
    found = documents(render(CHART, "gpu", json.dumps(values)))
    made = {e["metadata"]["name"]: e["spec"] for e in found if e["kind"] == "Deployment"}
    assert list(made) == ["kai-py", "kai-py-west", "kai-py-east"]
    pool = {"kai-py/node-pool": "west"}
    assert made["kai-py-west"]["selector"]["matchLabels"].items() >= pool.items()
    assert made["kai-py-west"]["template"]["metadata"]["labels"].items() >= pool.items()
    [container] = made["kai-py-west"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--node-pool=west"
    [container] = made["kai-py"]["template"]["spec"]["containers"]
    assert not any("node-pool" in each for each in container["args"])
    with_none = documents(render(CHART, "gpu", json.dumps({"image": "i"})))
    [alone] = [each for each in with_none if each["kind"] == "Deployment"]
    assert alone["spec"] == made["kai-py"]


@built_once
def test_rights_may_be_left_out():
    def rules(**rights):
        found = documents(render(CHART, "gpu", json.dumps({"image": "i", "rights": rights})))
        roles = {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterRole"}
        role = roles[NAME]
        return role["rules"]

    assert rules() == cluster_rules()
    for right in Right:
        assert rules(**{right: False}) == cluster_rules([right])


@built_once
def test_webhooks_ask_about_pods_of_the_configured_schedulers():
    config = {"schedulerAliases": ["other"], "webhook": {"port": 9444}}
    values = {"image": "i", "webhook": {"enabled": True}, "config": config}
    found = documents(render(CHART, "gpu", json.dumps(values)))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    mutating = by_name["MutatingWebhookConfiguration", "kai-py-webhook"]
    expression = mutating["webhooks"][1]["matchConditions"][0]["expression"]
    assert expression == 'object.spec.schedulerName in ["kai-scheduler","other"]'
    deployment = by_name["Deployment", "kai-py-webhook"]["spec"]["template"]["spec"]
    assert deployment["containers"][0]["ports"][0]["containerPort"] == 9444
    written = yaml_text.read(by_name["ConfigMap", "kai-py"]["data"][CONFIGURATION_FILE])
    assert written["webhook"] == {"namespace": "gpu", "port": 9444}


@built_once
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"image": ""}, "image: name the container image to run"),
        ({}, "image: name the container image to run"),
        ({"image": "a b"}, "'/image': 'a b' does not match"),
        ({"replicas": 0}, "'/replicas': minimum: got 0, want 1"),
        ({"replicas": "2"}, "'/replicas': got string, want integer"),
        ({"config": {"schedulerNam": "x"}}, "'/config': additional properties 'schedulerNam'"),
        ({"config": {"cyclePeriod": "soon"}}, "'/config/cyclePeriod': 'soon' does not match"),
        ({"config": {"http": {"port": 0}}}, "'/config/http/port': minimum: got 0, want 1"),
        ({"monitoring": {"rule": True}}, "'/monitoring': additional properties 'rule'"),
        ({"webhook": {"enabled": "maybe"}}, "'/webhook/enabled': got string, want boolean"),
        ({"nodeSelectors": {}}, "additional properties 'nodeSelectors'"),
        ({"nodeSelector": {"a": 1}}, "'/nodeSelector/a': got number, want string"),
        ({"tolerations": [{"kee": "x"}]}, "'/tolerations/0': additional properties 'kee'"),
        ({"imagePullSecrets": ["x"]}, "'/imagePullSecrets/0': got string, want object"),
        ({"resources": {"limit": {}}}, "'/resources': additional properties 'limit'"),
        ({"resources": {"limits": {"memory": "4 Gi"}}}, "'/resources/limits/memory': '4 Gi'"),
    ],
    ids=str,
)
def test_helm_says_where_values_make_no_sense(wrong, said):
    image = {} if not wrong or "image" in wrong else {"image": "i"}
    done = render(CHART, "gpu", json.dumps(image | wrong))
    assert done.returncode == 1
    assert said in done.stderr
