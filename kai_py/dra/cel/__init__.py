"""CEL as Kubernetes has it for devices: selectors and derived attributes.

One way through: ``parse`` (text to syntax) -> ``check`` (types) -> ``evaluate`` (closures), put
together in ``selector`` and ``attribute``; ``masks`` applies a selector to a whole ``table``.
"""
