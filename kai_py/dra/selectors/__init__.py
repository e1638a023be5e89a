"""Device selectors and derived attributes: CEL with the variable ``device``.

``device`` says what an expression sees of a device, ``selector`` and ``derived_attribute`` compile
the two kinds of expression, ``masks`` applies a selector to a whole ``table`` of devices.
"""
