"""What is wrong with a plan of a random cluster, cycle by cycle; knows nothing of the planner.

Two things may happen that look wrong. A pod that is relocated is not created again in plans of
files, so that its gang and queue have less than the plan took for granted. And what started in the
cycle before may be reclaimed from a queue that only pods which started later in that cycle brought
above what it deserves, or after it evicted those whose reclaim had been put off because of the work
that they would lose.
"""

from collections import defaultdict

from tests.simulate.cluster_model import SIZE, ClusterModel, chosen, named
from tests.simulate.random_clusters import LONG

MAX_WAYS = 3_000
"""Placements that are tried before a pending gang is taken to fit nowhere."""
FOR_OTHERS = ("preempt", "reclaim", "consolidate")


class PlanChecker(ClusterModel):
    """Carries out a plan of ``documents`` and collects in ``wrong`` what is wrong with it."""

    def __init__(self, documents, plan):
        super().__init__(documents)
        self.plan, self.wrong, self.started, self.tried = plan, [], {}, 0
        self.by_name = {f"default/{name}": pod for name, pod in self.pods.items()}
        self.gangs = defaultdict(list)
        for pod in self.pods.values():
            self.gangs[self.gang_of(pod)].append(pod)
        evictions = plan["evictions"]
        self.evicted = {each["pod"]: each["rule"] for each in evictions}
        self.moved = {e["pod"] for e in evictions if e["reason"].startswith("relocated")}
        self.leaving = [p for p in self.pods.values() if "deletionTimestamp" in p["metadata"]]

    def check(self):
        """Everything that is wrong, as sentences."""
        for cycle in range(1, self.plan["cycles"] + 1):
            placed, evicted = (
                [each for each in self.plan[kind] if each["cycle"] == cycle]
                for kind in ("placements", "evictions")
            )
            self._start_all(cycle, placed)
            for each in evicted:
                self._check_eviction(cycle, self.by_name[each["pod"]], each)
            self._end(self.by_name[each["pod"]] for each in evicted)
            self._end(self.leaving if cycle == 1 else ())
            self._check_rest_of_gangs(cycle, evicted)
            for each in placed:
                self.wrong += [f"{cycle}: {s}" for s in self._over_quota(self.by_name[each["pod"]])]
        if not self.plan["rest"] or self.plan["cycles"] > 50:
            self.wrong.append("no rest")
        self._check_budgets()
        self._check_nothing_fits()
        return self.wrong

    def _start_all(self, cycle, placements):
        """Pods start beside those that are evicted in the same cycle."""
        for each in placements:
            pod, node = self.by_name[each["pod"]], each["node"]
            given = {name.split("/")[1]: chosen(it) for name, it in each["claims"].items()}
            for claim, devices in given.items():
                said = self.wrong_devices(claim, node, devices)
                self.wrong += [f"{cycle}: {claim}: {said}"] if said else []
                self.devices[claim] = devices
            if named(pod) in self.at or {*given} != {*self.claims_of(pod)} or "junk" in named(pod):
                self.wrong.append(f"{cycle}: {named(pod)} starts with {given}")
            self.at[named(pod)] = node
            self.started[each["pod"]] = cycle
        for each in placements:
            pod = self.by_name[each["pod"]]
            node = self.at.pop(named(pod))
            said = self.refused(pod, node)
            self.wrong += [f"{cycle}: {named(pod)} on {node}: {said}"] if said else []
            self.at[named(pod)] = node
            if self._running(gang := self.gang_of(pod)) < self._least(gang):
                self.wrong.append(f"{cycle}: {gang} starts in part")

    def _check_eviction(self, cycle, pod, eviction):
        rule, spec = eviction["rule"], pod["spec"]
        age = cycle - self.started.get(eviction["pod"], -9)
        if 0 < age < 3 and not self.moved and not self._is_known(eviction):
            self.wrong.append(f"{cycle}: {named(pod)} started just now: {eviction}")
        if rule not in FOR_OTHERS:
            return
        others = self.gangs[eviction["for"].split("/")[-1]]
        queues, of_others, other = self.queues_of(pod), self.queues_of(others[0]), others[0]["spec"]
        within = rule == "preempt" and queues[0] == of_others[0]
        least = LONG in self.queues[queues[0]]["spec"].get("preemptMinRuntime", "")
        if (
            not preemptible(pod)
            or (rule == "preempt" and not within)
            or (within and other["priority"] <= spec["priority"])
            or (rule == "reclaim" and queues[0] == of_others[0])
            or (rule != "consolidate" and other.get("preemptionPolicy") == "Never")
            or (within and least and not self._running(self.gang_of(pod)))
        ):
            self.wrong.append(f"{cycle}: unjust: {eviction}")
        names = {f"default/{named(each)}" for each in others}
        if not names & self.moved and max(map(self.started_at, names)) < cycle:
            self.wrong.append(f"{cycle}: for nothing: {eviction}")

    def started_at(self, pod):
        """The last cycle in which the pod starts; 0: in none."""
        return max((p["cycle"] for p in self.plan["placements"] if p["pod"] == pod), default=0)

    def _is_known(self, eviction):
        """One of the exceptions at the top of this file."""
        own = self.queues_of(self.by_name[eviction["pod"]])[0]
        began = self.started[eviction["pod"]]
        grown = [p for p, c in self.started.items() if c == began and p not in self.evicted]
        late = any(self.queues_of(self.by_name[each])[0] == own for each in grown)
        gang = self.gang_of(self.by_name[eviction["pod"]])
        took = any(each["for"].split("/")[-1] == gang for each in self.plan["evictions"])
        return (late or took) and eviction["rule"] == "reclaim"

    def _end(self, pods):
        for pod in pods:
            self.at.pop(named(pod), None)
            for claim in self.claims_of(pod):
                self.devices.pop(claim, None)

    def _check_rest_of_gangs(self, cycle, evictions):
        """Gangs are evicted down to minMember or whole, unless what they lose fits elsewhere."""
        lost = defaultdict(list)
        for each in evictions:
            lost[self.gang_of(pod := self.by_name[each["pod"]])].append(pod)
        for gang, pods in lost.items():
            if 0 < self._running(gang) < self._least(gang) and not self._would_fit(pods):
                self.wrong.append(f"{cycle}: {gang} is evicted in part")

    def _over_quota(self, pod):
        """The quotas that count the pod and are exceeded by what stands."""
        for queue in self.queues_of(pod) if self.gpus(pod) else ():
            spec = self.queues[queue]["spec"]
            here = [each for name in self.at if queue in self.queues_of(each := self.pods[name])]
            kept = [each for each in here if not preemptible(each)]
            if sum(map(self.gpus, here)) > spec.get("maxGPUs", 1e9):
                yield f"queue {queue} is over its max"
            if not preemptible(pod) and sum(map(self.gpus, kept)) > spec["deservedGPUs"]:
                yield f"queue {queue} is over what it deserves without preemptible pods"

    def _check_budgets(self):
        """Budgets keep pods from others; what is left of a gang is evicted all the same."""
        for budget in self.of["PodDisruptionBudget"].values():
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            evicted = [self.by_name[p] for p, rule in self.evicted.items() if rule in FOR_OTHERS]
            lost = [p for p in evicted if wanted <= p["metadata"]["labels"].items()]
            if len(lost) > budget["status"]["disruptionsAllowed"]:
                self.wrong.append(f"a budget protects {[*map(named, lost)]}")

    def _check_nothing_fits(self):
        """No pending gang fits on what is idle, by trying all ways."""
        for gang in [each for each in self.gangs if each in self.of["Job"]]:
            waits = [
                pod
                for pod in self.gangs[gang]
                if named(pod) not in self.at and f"default/{named(pod)}" not in self.evicted
                if pod not in self.leaving
            ]
            missing = max(1, self._least(gang) - self._running(gang))
            if len(waits) >= missing and self._would_fit(waits[:missing]):
                self.wrong.append(f"{gang} would fit: {missing} of its pods")

    def _would_fit(self, pods):
        """Whether all of them fit beside what stands; nothing changes."""
        self.tried, before = 0, ({**self.at}, {**self.devices})
        found = self._fit(pods)
        self.at, self.devices = before
        return found

    def _fit(self, pods):
        if not pods:
            return True
        for _ in self.ways(pods[0], list(self.nodes)):
            self.tried += 1
            if self.tried < MAX_WAYS and not [*self._over_quota(pods[0])] and self._fit(pods[1:]):
                return True
        return False

    def _running(self, gang):
        return sum(named(pod) in self.at for pod in self.gangs[gang])

    def _least(self, gang):
        return int(self.of["Job"][gang]["metadata"]["annotations"][SIZE])


def preemptible(pod):
    return pod["metadata"]["labels"].get("kai.scheduler/preemptibility") != "non-preemptible"
