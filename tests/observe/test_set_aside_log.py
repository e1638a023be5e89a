"""What is set aside is logged when it fails, not in each cycle in which it does."""

import logging

from kai_py.observe.activity_log import SetAsideLog
from kai_py.plan.observations import SetAside
from kai_py.plan.plan import Plan


def test_a_failure_is_logged_once_until_it_ends_or_differs(caplog):
    caplog.set_level(logging.ERROR)
    log = SetAsideLog()
    fails = Plan(set_aside=(SetAside("ns/Job/a", "no such number", "trace"),))
    differs = Plan(set_aside=(SetAside("ns/Job/a", "no such name", "trace"),))
    action = Plan(failed_extensions=(SetAside("action x", "action x failed"),))
    for plan in (fails, fails, fails, differs, differs, Plan(), fails, action, action):
        log.record(plan)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a gang is set aside",
        "a gang is set aside",
        "a gang is set aside",
        "an extension is set aside",
    ]
    assert caplog.records[0].fields == {"gang": "ns/Job/a", "exception": "trace"}
