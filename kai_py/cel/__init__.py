"""CEL, the Common Expression Language, with the libraries Kubernetes adds to it.

``parse`` turns a text into a syntax tree, ``check`` finds its types, ``evaluate`` compiles it to
closures. ``estimate``, which the scheduler does not need, gives the static cost.
"""
