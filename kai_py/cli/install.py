"""``kai-py install``: all objects to run the scheduler in a cluster, as YAML to apply."""

import re
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from kai_py.api.choices import Profile
from kai_py.cli.configuration import configuration_from, with_options
from kai_py.cli.errors import CommandError
from kai_py.cli.options import takes_groups
from kai_py.cli.output import write_files
from kai_py.deploy.chart import chart
from kai_py.deploy.objects import Installation, manifests, text_of_manifest
from kai_py.deploy.parts import IMAGE_NAME
from kai_py.deploy.permissions import Right

NAMESPACE_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


class InstallOptions(Struct, frozen=True):
    """The options that say what is installed."""

    image: Annotated[str, typer.Option(help="Container image whose entry point is kai-py.")] = ""
    namespace: Annotated[str, typer.Option(help="Namespace, created if needed.")] = "kai-py"
    replicas: Annotated[
        int, typer.Option(min=1, help="One replica schedules, the others are standbys.")
    ] = 2
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring",
            help="Include alert rules, scraping and dashboards for the Prometheus operator.",
        ),
    ] = False
    config: Annotated[Path | None, typer.Option(help="Configuration file to include.")] = None
    webhook: Annotated[bool, typer.Option("--webhook", help="Include the admission webhooks.")] = (
        False
    )
    policies: Annotated[
        bool,
        typer.Option(
            help="Include policies that reserve the scheduler's fields to it, and restrict its "
            "account to them."
        ),
    ] = True
    without: Annotated[
        list[Right] | None,
        typer.Option(help="Leave out a right of the scheduler's account, and what needs it."),
    ] = None
    with_kai_api: Annotated[
        bool,
        typer.Option(
            "--with-kai-api",
            help="Include KAI's CRDs, priority classes and default queues; set rules: kai.",
        ),
    ] = False


@takes_groups
def command(
    *,
    wanted: InstallOptions,
    chart_dir: Annotated[
        Path | None, typer.Option("--chart", help="Write the Helm chart into this directory.")
    ] = None,
) -> None:
    """Print all to apply: ``kai-py install --image IMAGE | kubectl apply -f -``."""
    if chart_dir is not None:
        write_files(chart_dir, chart())
        return
    installation = _installation(wanted)
    texts = [text_of_manifest(each, installation.without) for each in manifests(installation)]
    typer.echo("---\n".join(texts), nl=False)


def _installation(wanted: InstallOptions) -> Installation:
    """What the options ask for; raises CommandError."""
    image, namespace = wanted.image, wanted.namespace
    if not image:
        raise CommandError("--image is missing: the container image to run")
    if not re.fullmatch(IMAGE_NAME, image):
        form = "an image is named like registry.example/kai-py:0.1.0"
        raise CommandError(f"--image {image}: is not an image name", hint=form)
    if not re.fullmatch(NAMESPACE_NAME, namespace):
        form = "lower-case letters, digits and -, with a letter or digit at each end"
        raise CommandError(f"--namespace {namespace}: is not the name of a namespace", hint=form)
    configured = configuration_from(wanted.config)
    options: dict[str, object] = {
        "leaderElection": {"namespace": namespace},
        "webhook": {"namespace": namespace},
    }
    if wanted.with_kai_api and "rules" not in configured.model_fields_set:
        options["rules"] = Profile.KAI
    configuration = with_options(configured, options)
    if configuration.http.port == 0:
        raise CommandError("http.port: a Service requires a fixed port, not 0")
    return Installation(
        image=image,
        namespace=namespace,
        replicas=wanted.replicas,
        configuration=configuration,
        monitoring=wanted.monitoring,
        webhook=wanted.webhook,
        policies=wanted.policies,
        kai_api=wanted.with_kai_api,
        without=frozenset(wanted.without or ()),
    )
