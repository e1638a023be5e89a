"""Built-in kinds: defaults, validation and admission of each.

Only what matters to schedulers, controllers and users is checked. Unknown fields of built-in kinds
are kept, not dropped: the embedded cluster has no schemas for them.
"""
