"""With DCS_CLIENTS=demand nothing is skipped: a skipped test fails."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and os.environ.get("DCS_CLIENTS") == "demand":
        report.outcome = "failed"
        report.longrepr = f"DCS_CLIENTS=demand, and this was skipped: {report.longrepr[2]}"
    return report
