"""CEL, the Common Expression Language, with the libraries that Kubernetes adds to it.

``parse`` turns a text into a syntax tree, ``check`` infers its types, ``expression`` compiles it
to closures. ``estimate``, which the scheduler does not need, computes the static cost.
"""
