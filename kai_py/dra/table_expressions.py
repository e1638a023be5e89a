"""CEL answers for single devices, looked up in masks that were computed for the whole fleet."""

from dataclasses import dataclass, field

from kai_py.api.records.resource import DeviceAttribute
from kai_py.cel.expression import CompileError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.fleet_layout import ClusterLayout
from kai_py.dra.rows import DeviceRow
from kai_py.dra.selectors.masks import mask
from kai_py.dra.selectors.selector import compile_selector


@dataclass(slots=True, eq=False)
class MaskedExpressions:
    """Looks selectors up in masks; faults and derived attributes are evaluated one by one."""

    layout: ClusterLayout | None = None
    single: CompiledExpressions = field(default_factory=CompiledExpressions)

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Tell whether a selector matches; raises as ``CompiledExpressions.matches`` does."""
        layout = self.layout
        selector = compile_selector(expression)
        position = None if layout is None else layout.row_of.get(id(row))
        if layout is None or position is None or isinstance(selector, CompileError):
            return self.single.matches(expression, row)
        found = mask(selector, layout.table)
        if found.error[position]:
            return self.single.matches(expression, row)
        return bool(found.value[position])

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``CompiledExpressions.derive`` does."""
        return self.single.derive(expression, row)
