"""``poolctl webhooks``: addresses that the pool calls with the events of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import WebhookSilentError
from cli.frame.options import DryRunOption, YesOption, command, group
from cli.frame.output import Invocation, Reply, listing

if TYPE_CHECKING:
    from pool_server.wire.events import WebhookResponse

app = group("Send your site's events to an address (site admins).")

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="As 'poolctl webhooks ls' shows it.")
]
SiteOption = Annotated[str, typer.Option(metavar="SITE", help="The site. Default: your own.")]


@command(app, "ls", examples=["webhooks ls", "webhooks ls --json"])
def ls(invocation: Invocation, *, site: SiteOption = "") -> Reply:
    """List the registered addresses with their last error."""
    with invocation.pool() as pool:
        found = pool.webhooks.list(site)
    return listing(
        found,
        ["id", "address", "kinds", "state", "waiting", "last error"],
        _row,
        empty="no webhooks",
    )


@command(
    app,
    "create",
    examples=[
        "webhooks create https://lab.example/pool-events",
        "webhooks create https://lab.example/pool-events --kind version.flagged "
        "--kind version.withdrawn",
    ],
)
def create(
    invocation: Invocation,
    url: Annotated[str, typer.Argument(metavar="URL", help="An https:// address.")],
    *,
    kind: Annotated[
        list[str],
        typer.Option(metavar="KIND", help="Only events of this kind; repeatable. Default: all."),
    ] = [],  # noqa: B006 (typer wants the default itself)
    site: SiteOption = "",
) -> Reply:
    """Register an address that the pool calls with every event, and print its signing secret.

    The secret is shown only once. The header X-Pool-Signature is sha256= and the HMAC-SHA256, with
    the secret, of X-Pool-Timestamp, a full stop, and the body.
    """
    with invocation.pool() as pool:
        created = pool.webhooks.create(url, kinds=kind, site=site)
    invocation.note(
        f"webhook {created.webhook_id} calls {created.url}; its secret is shown only once. Try it "
        f"with: poolctl webhooks test {created.webhook_id}"
    )
    return Reply(created, created.secret, [created.secret])


@command(app, "test", examples=["webhooks test 4f1d2c3b4a596877"])
def test(invocation: Invocation, webhook: WebhookArgument) -> Reply:
    """Send the event 'webhook.test' to an address now, and show its answer."""
    with invocation.pool() as pool:
        said = pool.webhooks.test(webhook)
    if not said.delivered:
        raise WebhookSilentError(f"webhook {webhook} did not accept the event: {said.error}")
    return Reply(said, f"webhook {webhook} answered {said.status}", [webhook])


@command(app, "rm", examples=["webhooks rm 4f1d2c3b4a596877 --yes"])
def rm(
    invocation: Invocation,
    webhook: WebhookArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Remove an address; its waiting events are dropped."""
    data = {"webhook_id": webhook, "deleted": not dry_run}
    if dry_run:
        return Reply(data, f"would delete webhook {webhook}", [webhook])
    invocation.confirm(f"Delete webhook {webhook}?", assume_yes=yes)
    with invocation.pool() as pool:
        pool.webhooks.delete(webhook)
    return Reply(data, f"deleted webhook {webhook}", [webhook])


def _row(webhook: WebhookResponse) -> list[str]:
    since = webhook.disabled_at
    return [
        webhook.webhook_id,
        webhook.url,
        ", ".join(webhook.kinds) or "all",
        "called" if since is None else f"disabled {since:%Y-%m-%d}",
        str(webhook.waiting),
        webhook.last_error,
    ]
