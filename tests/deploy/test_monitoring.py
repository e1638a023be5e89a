"""Rules, alerts and dashboards ask for metrics that exist, and say what they should say."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kai_py.deploy.monitoring import DASHBOARDS, RULES, rule_groups, text_of
from tests.support.repository import DOCS

PROMTOOL = shutil.which("promtool")
OURS = re.compile(r"\bkai(?:_(?:py|device)_\w+|:\w+:\w+)")
with_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool on the PATH (Debian's package prometheus has it)"
)


def panels():
    return [
        (name, panel, target)
        for name in DASHBOARDS
        for panel in json.loads(text_of(name))["panels"]
        for target in panel["targets"]
    ]


def recorded():
    return {rule["record"] for group in rule_groups()["groups"] for rule in group["rules"]
            if "record" in rule}  # fmt: skip


def expressions():
    rules = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
    return [rule["expr"] for rule in rules] + [target["expr"] for *_, target in panels()]


def existing():
    page = (DOCS / "metrics.md").read_text()
    return {name for name in OURS.findall(page) if name.startswith("kai_")} | recorded()


@pytest.mark.slow
def test_rules_and_dashboards_ask_for_metrics_that_exist():
    for expression in expressions():
        asked = {re.sub(r"_(bucket|sum|count)$", "", name) for name in OURS.findall(expression)}
        assert asked or "DCGM_" in expression, expression
        assert asked <= existing(), expression


def test_every_recorded_series_is_told_on_the_page():
    page = (DOCS / "metrics.md").read_text()
    assert {name for name in recorded() if name not in page} == set()


SECTIONS = ["Impact", "Diagnosis", "Mitigation"]


def test_logs_are_those_of_all_replicas():
    texts = [page.read_text() for page in (DOCS / "runbooks").glob("*.md")]
    commands = [
        each for text in texts for each in re.findall(r"`(kubectl logs .*deploy/.*)`", text)
    ]
    assert commands
    assert all("--all-pods" in each for each in commands), "the leader is one of several pods"


def test_every_alert_leads_to_a_runbook_of_its_own():
    alerts = {rule["alert"]: rule for group in rule_groups()["groups"] for rule in group["rules"]
              if "alert" in rule}  # fmt: skip
    assert {page.stem for page in (DOCS / "runbooks").glob("*.md")} == {*alerts}
    overview = (DOCS / "metrics.md").read_text()
    assert [name for name in alerts if f"[`{name}`](runbooks/{name}.md)" not in overview] == []
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook"] == f"runbooks/{name}.html"
        text = (DOCS / "runbooks" / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_every_panel_is_described_and_follows_the_chosen_queues():
    for name in DASHBOARDS:
        board = json.loads(text_of(name))
        assert {"datasource", "queue"} <= {each["name"] for each in board["templating"]["list"]}
        for panel in board["panels"]:
            assert len(panel["description"]) > 40
            for target in panel["targets"]:
                by_queue = "queue" in target["expr"].partition("by (")[2].partition(")")[0]
                assert not by_queue or '{queue=~"$queue"}' in target["expr"], target


def test_panels_are_told_apart_and_do_not_overlap():
    for name in DASHBOARDS:
        board = json.loads(text_of(name))
        places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
        titles = [panel["title"] for panel in board["panels"]]
        ids = [panel["id"] for panel in board["panels"]]
        for each in (places, titles, ids):
            assert len(set(each)) == len(each) >= 6


def promtool(*arguments, **settings):
    done = subprocess.run(
        [PROMTOOL, *arguments], check=False, capture_output=True, text=True, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / RULES
    path.write_text(text_of(RULES))
    return path


@with_promtool
def test_prometheus_takes_the_rules(rules):
    assert "SUCCESS" in promtool("check", "rules", rules)


@pytest.mark.slow
@with_promtool
def test_rules_and_alerts_say_what_they_should(rules):
    cases = Path(__file__).with_name("rules_test.yaml")
    shutil.copy(cases, rules.parent)
    promtool("test", "rules", cases.name, cwd=rules.parent)


def test_every_alert_is_tried():
    text = Path(__file__).with_name("rules_test.yaml").read_text()
    alerts = {rule["alert"] for group in rule_groups()["groups"] for rule in group["rules"]
              if "alert" in rule}  # fmt: skip
    assert len(alerts) >= 10
    assert {name for name in alerts if f"alertname: {name}\n" not in text} == set()


@with_promtool
def test_prometheus_understands_every_panel(tmp_path):
    groups = [{"name": "panels", "rules": [
        {"record": f"panel:{number}", "expr": target["expr"]}
        for number, (*_, target) in enumerate(panels())
    ]}]  # fmt: skip
    path = tmp_path / "panels.yaml"
    path.write_text(json.dumps({"groups": groups}))
    promtool("check", "rules", path)
