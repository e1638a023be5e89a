"""How well do we pack? A replay of the openb trace (Alibaba, 2023) through the placement core.

    python -m benchmarks.openb --data DIR --list default --seed 42 --strategy fgd \\
        --placements out.csv

Pods arrive one after the other until 130 % of the GPUs are asked for; none leaves, one that fits
nowhere is dropped. Printed is how much of the GPUs is given away when 100 % and 130 % are asked.
The experiment is that of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""
