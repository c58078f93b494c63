"""Python text for `ir` expressions, with the greatest value of the result where it is known: that spares masks and
checks of bounds.
"""

from collections.abc import Callable
from typing import NamedTuple

from switch_model import ir

_MAX_SHIFT = 4096
"""Wider than any field, so that shifting further changes no bit that is kept."""


class Code(NamedTuple):
    """An operand: a name, a literal, or an expression in parentheses."""

    text: str
    top: int | None  # the greatest value, the least is 0; None: unknown

    def fits(self, width: int) -> bool:
        return self.top is not None and self.top < 1 << width

    @property
    def is_atom(self) -> bool:
        """Whether the text costs nothing to repeat."""
        return self.text.isidentifier() or self.text.isalnum()


class Scope(NamedTuple):
    """What the leaves of an expression are where it is rendered."""

    read: Callable[[ir.Field | ir.Slice], Code]
    param: Callable[[ir.Param], Code] | None = None
    lookahead: Callable[[ir.Lookahead], Code] | None = None

    def with_value(self, item: ir.Field, code: Code) -> "Scope":
        """A scope in which `item` has this value."""

        def read(expr: ir.Field | ir.Slice) -> Code:
            if isinstance(expr, ir.Slice) and expr.field == item:
                return sliced(code, expr.low, expr.width)
            return code if expr == item else self.read(expr)

        return self._replace(read=read)


def truncated(code: Code, width: int) -> Code:
    """The low `width` bits, as on assignment to a bit<width>."""
    mask = (1 << width) - 1
    return code if code.fits(width) else Code(f"({code.text} & {mask:#x})", mask)


def assigned(code: Code, field: ir.Field) -> Code:
    """The value that `field` takes when it is assigned `code`: cut to its width, two's complement if signed."""
    if field.signed:
        half = 1 << (field.width - 1)
        return Code(f"((({code.text} + {half:#x}) & {field.mask:#x}) - {half:#x})", None)
    return truncated(code, field.width)


def unsigned(text: str, field: ir.Field) -> str:
    """The bits of `field` as they stand on the wire and in match keys."""
    return f"({text} & {field.mask:#x})" if field.signed else text


def sliced(code: Code, low: int, width: int) -> Code:
    """`width` bits of a value, `low` bits above its last one."""
    if low:
        code = Code(f"({code.text} >> {low})", None if code.top is None else code.top >> low)
    return truncated(code, width)


def render(expr: ir.Expr, scope: Scope) -> Code:
    """The value of `expr`; a boolean one is only good as a condition."""
    match expr:
        case ir.Const(value):
            text = str(value) if -10 < value < 10 else hex(value)
            return Code(text, value if value >= 0 else None)
        case ir.Field() | ir.Slice():
            return scope.read(expr)
        case ir.Valid(header):
            return scope.read(ir.validity(header))
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
            top = None if then.top is None or other.top is None else max(then.top, other.top)
            return Code(f"({then.text} if {condition(args[0], scope)} else {other.text})", top)
        case "b2d":
            return _bit(args[0], scope)
        case "d2b" | "not" | "and" | "or" | "==b" | "!=b":
            return Code(condition(ir.Op(name, args), scope), 1)
        case "~":
            return Code(f"(~{render(args[0], scope).text})", None)
    left, right = render(args[0], scope), render(args[1], scope)
    match name:
        case "usat_cast":
            return _saturated(args[0], left, args[1], scope)
        case "two_comp_mod" | "sat_cast":
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
    return Code(f"({left.text} {symbol} {right.text})", _top(name, left.top, right.top))


def _bit(expr: ir.Expr, scope: Scope) -> Code:
    """A truth value as a number."""
    match expr:
        case ir.Const(value):
            return Code("1" if value else "0", 1)
        case ir.Op("d2b", (operand,)) if (code := render(operand, scope)).fits(1):
            return code
    return Code(f"(1 if {condition(expr, scope)} else 0)", 1)


def _keeps(mask: int, value: Code) -> bool:
    """Whether masking with `mask` changes nothing."""
    return mask & (mask + 1) == 0 and value.fits(mask.bit_length())


def _saturated(expr: ir.Expr, value: Code, width: ir.Expr, scope: Scope) -> Code:
    """usat_cast: the value, but at least 0 and at most what fits the width."""
    full = (1 << _constant(width)) - 1
    match expr:
        case ir.Op("-", args):
            left, right = (render(arg, scope) for arg in args)
            if left.top is not None and left.top <= full and right.top is not None:
                if left.is_atom and right.is_atom:
                    return Code(f"({left.text} - {right.text} if {left.text} > {right.text} else 0)", left.top)
                return Code(f"max({value.text}, 0)", left.top)
    if value.top is not None:
        return value if value.top <= full else Code(f"min({value.text}, {full:#x})", full)
    return Code(f"min(max({value.text}, 0), {full:#x})", full)


def _cast(name: str, value: Code, width: ir.Expr) -> Code:
    full, half = (1 << _constant(width)) - 1, 1 << (_constant(width) - 1)
    if name == "sat_cast":
        return Code(f"min(max({value.text}, {-half:#x}), {half - 1:#x})", None)
    return Code(f"((({value.text} + {half:#x}) & {full:#x}) - {half:#x})", None)  # two_comp_mod


def _constant(width: ir.Expr) -> int:
    if not isinstance(width, ir.Const):
        raise TypeError("cast to a width that is no constant")
    return width.value


def _shift(name: str, left: Code, right: Code, amount: ir.Expr) -> Code:
    if not isinstance(amount, ir.Const):
        top = left.top if name == ">>" else None
        small = right.top is not None and right.top <= _MAX_SHIFT
        text = right.text if small else f"min({right.text}, {_MAX_SHIFT})"
        return Code(f"({left.text} {name} {text})", top)
    top = None
    if left.top is not None:
        top = left.top << amount.value if name == "<<" else left.top >> amount.value
    return Code(f"({left.text} {name} {amount.value})", top)


def _top(name: str, left: int | None, right: int | None) -> int | None:
    if name == "&":  # one known operand bounds the result even if the other is negative
        known = [top for top in (left, right) if top is not None]
        return min(known) if known else None
    if left is None or right is None or name == "-":
        return None
    match name:
        case "+":
            return left + right
        case "*":
            return left * right
        case "/":
            return left
        case "%":
            return min(left, right - 1)
    return (1 << max(left, right).bit_length()) - 1  # | and ^
