"""Gangs as a list: those that are at work or wait, then those that are done."""

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from kai_py.observe.live.cluster import GangView, Picture
from kai_py.observe.live.gang_styles import Marks


def gang_panel(picture: Picture, marks: Marks, *, rows: int) -> Panel:
    """At most ``rows`` gangs."""
    active = [gang for gang in picture.gangs if not _is_done(gang)]
    done = [gang for gang in reversed(picture.gangs) if _is_done(gang)]
    shown = (active + done)[:rows]
    names = max((len(gang.name) for gang in shown), default=0)
    hidden = len(picture.gangs) - len(shown)
    title = "Gangs" if not hidden else f"Gangs ({hidden} more)"
    return Panel(Group(*(_gang(gang, marks, names) for gang in shown)), title=title,
                 title_align="left")  # fmt: skip


def _is_done(gang: GangView) -> bool:
    return gang.pods > 0 and gang.finished == gang.pods and not gang.leaving


def _gang(gang: GangView, marks: Marks, names: int) -> Text:
    done = _is_done(gang)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {marks.letter(gang.key)} ", style="dim" if done else marks.style(gang.key))
    line.append(f" {gang.name:<{names}} ", style="dim" if done else "")
    bound = gang.pods if done else gang.bound
    line.append(f"{bound:>2}/{gang.pods:<2} ", style="dim")
    return line.append_text(_state(gang))


def _state(gang: GangView) -> Text:
    if _is_done(gang):
        return Text("done", style="dim")
    if gang.leaving:
        return Text(f"{gang.leaving} leaving", style="bold red")
    if gang.why:
        return Text(f"waits: {gang.why}" if not gang.bound else f"wants more: {gang.why}", "yellow")
    if gang.bound < gang.pods - gang.finished:
        return Text("pending", style="yellow")
    if gang.running < gang.bound:
        return Text("starting", style="cyan")
    return Text("running", style="green")
