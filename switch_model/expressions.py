"""Python text for `ir` expressions, with the width of the result where it is known.

A known width spares the masks: a value of `bits` bits is in 0 .. 2**bits - 1.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from switch_model import ir

_MAX_SHIFT = 4096
"""Wider than any field, so that shifting further changes no bit that is kept."""


class Code(NamedTuple):
    """An operand: a name, a literal, or an expression in parentheses."""

    text: str
    bits: int | None  # None: unknown, or possibly negative

    def fits(self, width: int) -> bool:
        return self.bits is not None and self.bits <= width


class Scope(NamedTuple):
    """What the leaves of an expression are where it is rendered. `bits` narrows fields below their widths."""

    names: Mapping[ir.Field, str]
    bits: Mapping[ir.Field, int]
    param: Callable[[ir.Param], Code] | None = None
    lookahead: Callable[[ir.Lookahead], Code] | None = None

    def field(self, item: ir.Field) -> Code:
        return Code(self.names[item], None if item.signed else self.bits.get(item, item.width))


def truncated(code: Code, width: int) -> Code:
    """The low `width` bits, as on assignment to a bit<width>."""
    return code if code.fits(width) else Code(f"({code.text} & {(1 << width) - 1:#x})", width)


def assigned(code: Code, field: ir.Field) -> Code:
    """The value that `field` takes when it is assigned `code`: cut to its width, two's complement if signed."""
    if field.signed:
        half = 1 << (field.width - 1)
        return Code(f"((({code.text} + {half:#x}) & {field.mask:#x}) - {half:#x})", None)
    return truncated(code, field.width)


def unsigned(name: str, field: ir.Field) -> str:
    """The bits of `field` as they stand on the wire and in match keys."""
    return f"({name} & {field.mask:#x})" if field.signed else name


def render(expr: ir.Expr, scope: Scope) -> Code:
    """The value of `expr`; a boolean one is only good as a condition."""
    match expr:
        case ir.Const(value):
            text = str(value) if -10 < value < 10 else hex(value)
            return Code(text, value.bit_length() if value >= 0 else None)
        case ir.Field():
            return scope.field(expr)
        case ir.Slice(field, low, width):
            if expr.part in scope.names:
                return Code(scope.names[expr.part], width)
            bits = scope.bits.get(field, field.width) - low
            text = f"({scope.names[field]} >> {low})" if low else scope.names[field]
            return truncated(Code(text, max(bits, 0)), width)
        case ir.Valid(header):
            return Code(scope.names[ir.Field(header, "$valid$", 1, 0)], 1)
        case ir.Param() if scope.param:
            return scope.param(expr)
        case ir.Lookahead() if scope.lookahead:
            return scope.lookahead(expr)
        case ir.Op(name, args):
            return _operation(name, args, scope)
    raise TypeError(f"{expr} has no place here")


def condition(expr: ir.Expr, scope: Scope) -> str:
    """The text of a truth test."""
    match expr:
        case ir.Op("d2b" | "b2d", (operand,)) | ir.Op("!=", (operand, ir.Const(0))):
            return condition(operand, scope)
        case ir.Op("not", (operand,)) | ir.Op("==", (operand, ir.Const(0))):
            return f"(not {condition(operand, scope)})"
        case ir.Op("and" | "or" as name, (left, right)):
            return f"({condition(left, scope)} {name} {condition(right, scope)})"
        case ir.Op("==b" | "!=b" as name, (left, right)):
            return f"(bool({condition(left, scope)}) {name[:2]} bool({condition(right, scope)}))"
    return render(expr, scope).text


def _operation(name: str, args: tuple[ir.Expr, ...], scope: Scope) -> Code:
    match name:
        case "?":
            then, other = render(args[1], scope), render(args[2], scope)
            bits = None if then.bits is None or other.bits is None else max(then.bits, other.bits)
            return Code(f"({then.text} if {condition(args[0], scope)} else {other.text})", bits)
        case "b2d":
            return Code(f"(1 if {condition(args[0], scope)} else 0)", 1)
        case "d2b" | "not" | "and" | "or" | "==b" | "!=b":
            return Code(condition(ir.Op(name, args), scope), 1)
        case "~":
            return Code(f"(~{render(args[0], scope).text})", None)
    left, right = render(args[0], scope), render(args[1], scope)
    match name:
        case "two_comp_mod" | "usat_cast" | "sat_cast":
            return _cast(name, left, args[1])
        case "<<" | ">>":
            return _shift(name, left, right, args[1])
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            return Code(f"({left.text} {name} {right.text})", 1)
        case "|" | "^" | "+" | "-" if args[1] == ir.Const(0):
            return left
        case "&" if isinstance(args[1], ir.Const) and _keeps(args[1].value, left):
            return left
    symbol = "//" if name == "/" else name
    return Code(f"({left.text} {symbol} {right.text})", _width(name, left.bits, right.bits))


def _keeps(mask: int, value: Code) -> bool:
    """Whether masking with `mask` changes nothing."""
    return mask & (mask + 1) == 0 and value.fits(mask.bit_length())


def _cast(name: str, value: Code, width: ir.Expr) -> Code:
    if not isinstance(width, ir.Const):
        raise TypeError(f"{name} to a width that is no constant")
    bits = width.value
    full, half = (1 << bits) - 1, 1 << (bits - 1)
    match name:
        case "usat_cast":
            return Code(f"min(max({value.text}, 0), {full:#x})", bits)
        case "sat_cast":
            return Code(f"min(max({value.text}, {-half:#x}), {half - 1:#x})", None)
    return Code(f"((({value.text} + {half:#x}) & {full:#x}) - {half:#x})", None)  # two_comp_mod


def _shift(name: str, left: Code, right: Code, amount: ir.Expr) -> Code:
    if not isinstance(amount, ir.Const):
        bits = left.bits if name == ">>" else None
        small = right.fits(_MAX_SHIFT.bit_length() - 1)
        text = right.text if small else f"min({right.text}, {_MAX_SHIFT})"
        return Code(f"({left.text} {name} {text})", bits)
    bits = None
    if left.bits is not None:
        bits = left.bits + amount.value if name == "<<" else max(left.bits - amount.value, 0)
    return Code(f"({left.text} {name} {amount.value})", bits)


def _width(name: str, left: int | None, right: int | None) -> int | None:
    if name == "&":  # one known operand bounds the result even if the other is negative
        known = [bits for bits in (left, right) if bits is not None]
        return min(known) if known else None
    if left is None or right is None or name == "-":
        return None
    match name:
        case "+":
            return max(left, right) + 1
        case "*":
            return left + right
        case "/":
            return left
        case "%":
            return min(left, right)
    return max(left, right)  # | and ^
