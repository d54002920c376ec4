"""The changes that `make mutate` tries, and the code that it leaves alone.

The operators of mutmut are used as they are, with two reductions (one change per string instead of three, and no
change to a text that people read) and three additions, because most faults that reviewers planted by hand were a
call that is missing, a condition with one half, or a condition turned round.

docs/mutation.md gives the reason for each exclusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst
import libcst.matchers as m
from mutmut.mutation import file_mutation, mutators

_LOGGERS = ("_logger", "_log", "logger", "log")
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_REPRESENTATIONS = ("__repr__", "__str__", "describe")

_LOG_CALL = m.Call(
    func=m.Attribute(
        value=m.OneOf(*(m.Name(name) for name in _LOGGERS)),
        attr=m.OneOf(*(m.Name(level) for level in _LEVELS)),
    )
)


def is_prose(node: cst.CSTNode) -> bool:
    """Is it a text for people? Identifiers of the protocol, of files and of options have no spaces."""
    if isinstance(node, cst.SimpleString):
        return " " in node.value
    if isinstance(node, cst.FormattedString):
        return any(isinstance(part, cst.FormattedStringText) and " " in part.value for part in node.parts)
    return isinstance(node, cst.ConcatenatedString) and (is_prose(node.left) or is_prose(node.right))


def is_left_alone(node: cst.CSTNode) -> bool:
    """Is every change below this node either equivalent or a matter of wording?"""
    if isinstance(node, cst.FunctionDef):
        return node.name.value in _REPRESENTATIONS
    return isinstance(node, cst.Assert) or is_prose(node) or m.matches(node, _LOG_CALL)


def operator_string(node: cst.BaseString) -> Iterator[cst.BaseString]:
    """The first of mutmut's changes; the other two change only the case of the same letters."""
    yield from list(mutators.operator_string(node))[:1]


def operator_arguments(node: cst.Call) -> Iterator[cst.Call]:
    """None in place of an argument, or the call without it, unless the argument is a text for people."""
    for at, argument in enumerate(node.args):
        if is_prose(argument.value):
            continue
        if not argument.star and not m.matches(argument.value, m.Name("None")):
            yield node.with_changes(
                args=[*node.args[:at], argument.with_changes(value=cst.Name("None")), *node.args[at + 1 :]]
            )
        if len(node.args) > 1:
            yield node.with_changes(args=[*node.args[:at], *node.args[at + 1 :]])


def operator_call_removal(node: cst.Expr) -> Iterator[cst.BaseSmallStatement]:
    """`f(x)` as a statement of its own does not happen."""
    call = node.value.expression if isinstance(node.value, cst.Await) else node.value
    if isinstance(call, cst.Call) and not m.matches(call, _LOG_CALL):
        yield cst.Pass()


def operator_half_condition(node: cst.BooleanOperation) -> Iterator[cst.BaseExpression]:
    """`a and b` becomes `a`, or `b`."""
    for half in (node.left, node.right):
        yield half.with_changes(lpar=[*node.lpar, *half.lpar], rpar=[*half.rpar, *node.rpar])


def operator_plain_condition(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """`if a` becomes `if not a`; conditions with an operator have changes of their own."""
    if isinstance(node.test, cst.Name | cst.Attribute | cst.Call):
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), node.test))


OPERATORS: mutators.OPERATORS_TYPE = [
    *(
        (kind, operator)
        for kind, operator in mutators.mutation_operators
        if operator not in (mutators.operator_string, mutators.operator_arg_removal)
    ),
    (cst.BaseString, operator_string),
    (cst.Call, operator_arguments),
    (cst.Expr, operator_call_removal),
    (cst.BooleanOperation, operator_half_condition),
    (cst.If, operator_plain_condition),
    (cst.While, operator_plain_condition),
]


class Visitor(file_mutation.MutationVisitor):
    """mutmut's visitor, which passes by what is left alone."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        return is_left_alone(node) or super()._skip_node_and_children(node)


def install() -> None:
    """mutmut has no option for operators: these take the places of its own."""
    file_mutation.MutationVisitor = Visitor  # type: ignore[misc]
    file_mutation.mutation_operators = OPERATORS


def mutants_of(source: str) -> Sequence[str]:
    """Every mutant of a module, as source text."""
    module, mutations, *_ = file_mutation.create_mutations("module.py", source)
    return [
        module.deep_replace(each.original_node, each.mutated_node).code  # type: ignore[union-attr, arg-type]
        for each in mutations
        if each.contained_by_top_level_function
    ]
