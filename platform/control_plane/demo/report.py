"""The summary for people."""

from control_plane.demo.progress import say
from control_plane.demo.summary import Success, Summary, TenantFigures


def show(summary: Summary) -> None:
    """Every tenant's figures, the services', and every check that failed."""
    for tenant in summary.tenants:
        _show_tenant(tenant, summary.busy_us)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in summary.utilization.items())
    say(f"\nBusy while the four jobs ran: {shares}")
    for failure in summary.failures():
        say(f"CHECK FAILED: {failure}")


def _show_tenant(tenant: TenantFigures, busy_us: int) -> None:
    share = tenant.busy_us / busy_us if busy_us else 0.0
    say(
        f"\n{tenant.name}: {tenant.environment}, {tenant.algorithm}, {tenant.head} head\n"
        f"  success                 {_success(tenant.before)} -> {_success(tenant.after)}\n"
        f"  imitation loss          {tenant.loss_first:.4f} -> {tenant.loss_last:.4f}\n"
        f"  policy versions         {tenant.policy_versions} ({tenant.dropped_stale} rollouts dropped as stale)\n"
        f"  environment steps       {tenant.env_steps}\n"
        f"  share of busy time      {share:.1%} ({tenant.busy_us / 1e6:.1f} s)\n"
        f"  price                   {tenant.cost:.4f} {tenant.currency}\n"
        f"  adapter                 {tenant.adapter} (reloads within {tenant.reload_max_diff:.1e})"
    )


def _success(success: Success) -> str:
    low, high = success.interval
    return f"{success.rate:.0%} [{low:.0%}, {high:.0%}]"
