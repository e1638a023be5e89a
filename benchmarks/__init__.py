"""How fast is the scheduler, and what does it need? One command, one table.

    python -m benchmarks                          everything (needs the real control plane)
    python -m benchmarks --only core              one part: api, watch or core; may be repeated
    python -m benchmarks --only api/fill          rows whose part/name contains a text
    python -m benchmarks --write docs/benchmarks.md   renew its table (rows kept beside it)

Every row is measured in a process of its own. Problems are defined as the peer defines them, so
that figures of the same problem stand side by side; what differs is said in docs/benchmarks.md.
"""
