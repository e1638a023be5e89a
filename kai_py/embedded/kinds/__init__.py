"""What may an object of each built-in kind contain? Defaults, validation, admission, per kind.

Only what schedulers, controllers and people meet is checked. Unknown fields of built-in kinds are
kept, not dropped: the embedded cluster has no schemas for them.
"""
