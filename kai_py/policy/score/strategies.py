"""Strategies of placement by name, and what they need to know of the pods to come."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.best_fit import best_fit
from kai_py.policy.score.clustering import clustering
from kai_py.policy.score.dot_product import dot_product
from kai_py.policy.score.fragmentation import fragmentation
from kai_py.policy.score.frugal import stranded
from kai_py.policy.score.growth import least_growth_score
from kai_py.policy.score.node_capacity import WHOLE_GPU, Score
from kai_py.policy.score.packing import packing
from kai_py.policy.score.random_score import random_score
from kai_py.policy.score.workload import PodShapes, TargetWorkload
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

COVERED_PODS = 0.95
"""Part of all pods that the target workload stands for, the most frequent shapes first."""


class ScoreStrategy(StrEnum):
    """Which node, and which GPU of it, a pod gets among those that have room."""

    RANDOM = "random"
    DOT_PRODUCT = "dot-product"
    CLUSTERING = "clustering"
    PACKING = "packing"
    BEST_FIT = "best-fit"
    FGD = "fgd"
    FRUGAL = "frugal"


FIXED_SCORES: Mapping[ScoreStrategy, Score] = {
    ScoreStrategy.DOT_PRODUCT: dot_product,
    ScoreStrategy.CLUSTERING: clustering,
    ScoreStrategy.PACKING: packing,
    ScoreStrategy.BEST_FIT: best_fit,
}


def score_of(strategy: ScoreStrategy, workload: TargetWorkload) -> Score:
    """The score of a strategy for pods that come as ``workload`` says."""
    if strategy is ScoreStrategy.RANDOM:
        return random_score()
    if strategy is ScoreStrategy.FGD:
        return least_growth_score(workload, fragmentation)
    if strategy is ScoreStrategy.FRUGAL:
        return least_growth_score(workload, stranded)
    return FIXED_SCORES[strategy]


def frequent_shapes(snapshot: Snapshot) -> list[tuple[Shape, int]]:
    """Shapes and their pods, the most frequent first, until ``COVERED`` of all pods."""
    shapes: dict[int, Shape] = {}
    counts: Counter[int] = Counter()
    for gang in snapshot.gangs.values():
        for member in gang.members:
            shapes[member.shape.number] = member.shape
            counts[member.shape.number] += 1
    taken: list[tuple[Shape, int]] = []
    covered, enough = 0, COVERED_PODS * counts.total()
    for number, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= enough:
            break
        taken.append((shapes[number], count))
        covered += count
    return taken


def target_workload(
    counted: Sequence[tuple[Shape, int]], snapshot: Snapshot, static_fits: StaticFits
) -> TargetWorkload:
    """Shapes and how many pods have them, as a target workload on the nodes of ``snapshot``."""
    total = sum(count for _, count in counted)
    smallest = snapshot.gpu_sharing.smallest
    asked = [(shape, *_gpu_request(shape, smallest), count) for shape, count in counted]
    asked = [each for each in asked if each[1]]
    accepts = np.zeros((len(snapshot.nodes), len(asked)), dtype=np.bool_)
    for position, (shape, *_) in enumerate(asked):
        accepts[:, position] = static_fits.of(shape, snapshot.nodes).mask
    cpu, memory = (_requests_of([shape for shape, *_ in asked], name) for name in ("cpu", "memory"))
    devices = np.array([devices for _, devices, _, _ in asked], dtype=np.int64)
    shapes = PodShapes(
        cpu=cpu,
        memory=memory,
        devices=devices,
        milli=np.array([milli for _, _, milli, _ in asked], dtype=np.float64),
        share=np.array([count / total for *_, count in asked], dtype=np.float64),
        supply=_supply(snapshot, cpu, memory, devices.astype(np.float64), accepts),
        accepts=accepts,
    )
    return TargetWorkload.from_shapes(shapes)


def _requests_of(shapes: Sequence[Shape], resource: str) -> Floats:
    return np.array([shape.requests.get(resource, 0.0) for shape in shapes], dtype=np.float64)


def _supply(
    snapshot: Snapshot, cpu: Floats, memory: Floats, devices: Floats, accepts: Bools
) -> Floats:
    """(m,) the part of all GPUs that is on nodes which hold such a pod when they are empty."""
    positions, amounts = snapshot.resources.positions, snapshot.nodes.allocatable
    if GPU_RESOURCE not in positions:
        return np.zeros(len(cpu))
    gpus = np.floor(amounts[positions[GPU_RESOURCE]])
    holds = accepts & (gpus[:, None] >= devices)
    holds &= amounts[positions["cpu"]][:, None] >= cpu
    holds &= amounts[positions["memory"]][:, None] >= memory
    return np.asarray(gpus @ holds / max(gpus.sum(), 1.0))


def _gpu_request(shape: Shape, smallest: float) -> tuple[int, float]:
    """GPUs that a shape asks for, and milli of each; memory as a part of the smallest GPU."""
    share = shape.gpu_share
    if share is None:
        return int(shape.requests.get(GPU_RESOURCE, 0.0)), WHOLE_GPU
    return share.devices, WHOLE_GPU * share.gpus(smallest) / share.devices
