"""Panel of gangs: those that run or are pending, then those that have finished."""

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from kai_py.observe.live.cluster import LiveCluster, LiveGang
from kai_py.observe.live.gang_styles import GangStyles


def gang_panel(cluster: LiveCluster, styles: GangStyles, *, rows: int) -> Panel:
    """A panel with at most ``rows`` gangs."""
    active = [gang for gang in cluster.gangs if not _is_done(gang)]
    done = [gang for gang in reversed(cluster.gangs) if _is_done(gang)]
    shown = (active + done)[:rows]
    names = max((len(gang.name) for gang in shown), default=0)
    hidden = len(cluster.gangs) - len(shown)
    title = "Gangs" if not hidden else f"Gangs ({hidden} more)"
    return Panel(Group(*(_gang(gang, styles, names) for gang in shown)), title=title,
                 title_align="left")  # fmt: skip


def _is_done(gang: LiveGang) -> bool:
    return gang.pods > 0 and gang.finished == gang.pods and not gang.terminating


def _gang(gang: LiveGang, styles: GangStyles, names: int) -> Text:
    done = _is_done(gang)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {styles.letter(gang.key)} ", style="dim" if done else styles.style(gang.key))
    line.append(f" {gang.name:<{names}} ", style="dim" if done else "")
    bound = gang.pods if done else gang.bound
    line.append(f"{bound:>2}/{gang.pods:<2} ", style="dim")
    return line.append_text(_state(gang))


def _state(gang: LiveGang) -> Text:
    if _is_done(gang):
        return Text("done", style="dim")
    if gang.terminating:
        return Text(f"{gang.terminating} terminating", style="bold red")
    if gang.pending_reason:
        return Text(
            f"pending: {gang.pending_reason}"
            if not gang.bound
            else f"needs more: {gang.pending_reason}",
            "yellow",
        )
    if gang.bound < gang.pods - gang.finished:
        return Text("pending", style="yellow")
    if gang.running < gang.bound:
        return Text("starting", style="cyan")
    return Text("running", style="green")
