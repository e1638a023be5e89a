"""Device selectors and derived attributes: CEL with the variable ``device``.

``device`` defines devices as expressions see them, ``selector`` compiles the two kinds of
expression, ``masks`` applies a selector to a whole ``table`` of devices.
"""
