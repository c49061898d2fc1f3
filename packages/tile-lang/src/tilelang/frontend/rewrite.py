"""Rewrite a kernel's text so that its statements call the tracer.

before                                after
------                                -----
x = e                                 __tl.at(12, "x"); x = __tl.assign("x", e, lambda: x)
A[i] = e                              __tl.store(A, i, e)
A[i] += e                             __tl.update(A, i, "add", e)
for i in it: body                     for i in __tl.loop(it, ("i",)): body      (and a merge of the names it sets)
while c: body                         for _ in __tl.while_loop(lambda: c): body
if c: a else: b                       __b = __tl.branch(c); if __b.then(): a; if __b.otherwise(): b; __b.end()
break / continue                      if __tl.leave("break"): break
a and b, not a, a if c else b         __tl.logical("and", lambda: a, lambda: b), ...
a < b < c                             (a < b) and (b < c)

Everything else is ordinary Python and runs as it is. Line numbers are kept, so tracebacks name the user's lines.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any, cast

from tilelang.errors import SourceUnavailable, UnsupportedConstruct
from tilelang.frontend.body_names import assigned_names, read_first
from tilelang.location import Location

RUNTIME = "__tl"
_OPERATOR = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.MatMult: "matmul",
}
_REFUSED = {
    ast.AsyncFunctionDef: "async functions",
    ast.AsyncFor: "`async for`",
    ast.AsyncWith: "`async with`",
    ast.Await: "`await`",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield from`",
    ast.Global: "`global`",
    ast.Nonlocal: "`nonlocal`",
    ast.ClassDef: "a class definition",
    ast.Try: "`try`",
    ast.Delete: "`del`",
}


@functools.lru_cache(maxsize=1024)
def source_of(code: types.CodeType) -> tuple[str, int, str]:
    """(dedented text, first line, file) of a function; SourceUnavailable if there is no file to read."""
    # inspect.getsourcelines does the same after looking through every loaded module for the file's owner (10 ms).
    linecache.checkcache(code.co_filename)
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    try:
        if not lines:
            raise OSError
        lines = inspect.getblock(lines)
    except (OSError, SyntaxError, IndexError):
        raise SourceUnavailable(
            f"the source of {code.co_name} cannot be read",
            found=f"code from {code.co_filename}",
            expected="a function in a file or a notebook cell",
            repair="put the kernel into a .py file (kernels typed at the prompt or made by exec() have no text)",
            at=Location(code.co_filename, code.co_firstlineno),
        ) from None
    return textwrap.dedent("".join(lines)), first, code.co_filename


@functools.lru_cache(maxsize=1024)
def syntax_of(code: types.CodeType) -> ast.FunctionDef:
    """The function's syntax tree with the user's line numbers."""
    text, first, file = source_of(code)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # A lambda or a function in the middle of an expression: its lines are no statement.
        tree = ast.Module(body=[], type_ignores=[])
    ast.increment_lineno(tree, first - 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            return node
    raise SourceUnavailable(
        f"the source of {code.co_name} is no function definition",
        found=f"text at {file}:{first}",
        expected="`def name(...):`",
        repair="write the kernel with def",
        at=Location(file, first),
    )


def _free(code: types.CodeType) -> tuple[str, ...]:
    """The variables that a function closes over; in a kernel's text that was rewritten already, the runtime is one more."""
    return tuple(name for name in code.co_freevars if name != RUNTIME)


@functools.lru_cache(maxsize=1024)
def rewritten(code: types.CodeType) -> types.CodeType:
    """The compiled outer function `(runtime, *free variables) -> function` for a function's code object."""
    import copy

    file = code.co_filename
    definition = copy.deepcopy(syntax_of(code))
    definition.decorator_list = []
    definition.returns = None
    for arg in ast.walk(definition.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    defaults = definition.args
    defaults.defaults = [ast.Constant(None) for _ in defaults.defaults]
    defaults.kw_defaults = [None if d is None else ast.Constant(None) for d in defaults.kw_defaults]
    definition.body = _Rewriter(file, _parameter_names(definition)).block(definition.body)
    header = f"def __tl_outer({', '.join((RUNTIME, *_free(code)))}): pass"
    outer = cast(ast.FunctionDef, ast.parse(header).body[0])
    outer.body = [definition, ast.Return(ast.Name(definition.name, ast.Load()))]
    ast.copy_location(outer, definition)
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    return compile(module, file, "exec")


def instrument(function: Callable[..., Any], runtime: Any) -> Callable[..., Any]:
    """`function` with every statement reporting to `runtime`; globals and closure are the original's."""
    inner = inspect.unwrap(function)
    space: dict[str, Any] = {}
    exec(rewritten(inner.__code__), inner.__globals__, space)  # defines __tl_outer only
    cells = []
    closure = dict(zip(inner.__code__.co_freevars, inner.__closure__ or ()))
    for name in _free(inner.__code__):
        try:
            cells.append(closure[name].cell_contents)
        except ValueError:  # assigned later than the kernel is traced
            cells.append(Unassigned(name))
    made = space["__tl_outer"](runtime, *cells)
    made.__defaults__ = inner.__defaults__
    made.__kwdefaults__ = inner.__kwdefaults__
    return made


class Unassigned:
    """Stands for a name that has no value yet; any use of it is an UndefinedName error."""

    def __init__(self, name: str, why: str = "") -> None:
        self.__dict__["_name"], self.__dict__["_why"] = name, why

    def _fail(self, *_: Any, **__: Any) -> Any:
        from tilelang.errors import LoopCarriedValue, UndefinedName

        name, why = self.__dict__["_name"], self.__dict__["_why"]
        if why:
            raise LoopCarriedValue(
                f"{name} is used after a run-time {why} that assigns it",
                found=f"a plain Python name that would need a different value on each path through the {why}",
                expected="a mutable scalar",
                repair=f"declare `{name} = T.alloc_var(dtype, init=...)` before the {why} and assign to it",
            )
        raise UndefinedName(
            f"{name} is used before it is assigned",
            expected="an assignment that always runs first",
            repair=f"assign {name} before this line",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._fail()

    __call__ = __getitem__ = __setitem__ = __iter__ = __len__ = __bool__ = __index__ = __float__ = _fail
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _fail
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = _fail
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _fail
    __hash__ = object.__hash__


def _parameter_names(definition: ast.FunctionDef) -> frozenset[str]:
    a = definition.args
    names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return frozenset(names + [x.arg for x in (a.vararg, a.kwarg) if x])


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str, parameters: frozenset[str] = frozenset()) -> None:
        self.file = file
        self.parameters = parameters
        self.counter = 0
        self.loop_depth = 0

    # -- pieces of new syntax ----------------------------------------------------------------------------
    def call(self, name: str, *args: ast.expr) -> ast.Call:
        function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
        return ast.Call(function, list(args), [])

    @staticmethod
    def thunk(body: ast.expr) -> ast.Lambda:
        none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.Lambda(none, body)

    def peeks(self, names: list[str]) -> ast.Tuple:
        return ast.Tuple([self.thunk(ast.Name(n, ast.Load())) for n in names], ast.Load())

    @staticmethod
    def strings(names: list[str]) -> ast.Tuple:
        return ast.Tuple([ast.Constant(n) for n in names], ast.Load())

    @staticmethod
    def store_names(names: list[str]) -> ast.expr:
        return ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"__{stem}{self.counter}"

    # -- bodies ------------------------------------------------------------------------------------------
    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for stmt in body:
            names = []
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                names = _target_names(targets[0])
            elif isinstance(stmt, ast.With):
                names = [n for item in stmt.items if item.optional_vars for n in _target_names(item.optional_vars)]
            mark = ast.Expr(self.call("at", ast.Constant(stmt.lineno), *[ast.Constant(n) for n in names]))
            done = self.visit(stmt)
            new = done if isinstance(done, list) else [done]
            for node in (mark, *new):
                ast.copy_location(node, stmt)
                for child in ast.walk(node):
                    if not hasattr(child, "lineno") and isinstance(child, (ast.expr, ast.stmt)):
                        ast.copy_location(child, stmt)
            result += [mark, *[n for n in new if n is not None]]
        return result or [ast.Pass()]

    def refuse(self, node: ast.AST, what: str, repair: str) -> Any:
        raise UnsupportedConstruct(
            f"{what} in a kernel",
            expected="assignments, loops, if, while, with, calls and expressions",
            repair=repair,
            at=Location(self.file, getattr(node, "lineno", 0)),
        )

    def generic_visit(self, node: ast.AST) -> ast.AST:
        what = _REFUSED.get(type(node))
        if what is not None:
            self.refuse(node, f"{what} stands", "compute it outside of the kernel and close over the result")
        return super().generic_visit(node)

    # -- statements --------------------------------------------------------------------------------------
    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        inner = _Rewriter(self.file, _parameter_names(node))
        node.body = inner.block(node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) > 1:
            self.refuse(node, "`a = b = c` stands", "assign in two statements")
        return self.assignment(node.targets[0], value)

    def assignment(self, target: ast.expr, value: ast.expr) -> Any:
        if isinstance(target, ast.Name):
            old = self.thunk(ast.Name(target.id, ast.Load()))
            return ast.Assign([target], self.call("assign", ast.Constant(target.id), value, old))
        if isinstance(target, ast.Subscript):
            place = self.index(target.slice)
            return ast.Expr(self.call("store", self.visit(target.value), place, value))
        if isinstance(target, ast.Attribute):
            target.value = self.visit(target.value)
            return ast.Assign([target], value)
        if isinstance(target, (ast.Tuple, ast.List)):
            return self.unpacking(target, value)
        return self.refuse(target, "this assignment target stands", "assign to a name or an element")

    def unpacking(self, target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.stmt]:
        """`a, B[i] = e`: evaluate everything first, then assign each part."""
        parts = self.fresh("parts")
        stars = any(isinstance(e, ast.Starred) for e in target.elts)
        if stars:
            return [ast.Assign([target], value)]
        count = ast.Constant(len(target.elts))
        result: list[ast.stmt] = [ast.Assign([ast.Name(parts, ast.Store())], self.call("unpack", value, count))]
        for i, element in enumerate(target.elts):
            item = ast.Subscript(ast.Name(parts, ast.Load()), ast.Constant(i), ast.Load())
            done = self.assignment(element, item)
            result += done if isinstance(done, list) else [done]
        return result

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            return self.refuse(node, "an annotated element stands", "annotate plain names only")
        name, annotation = node.target.id, self.visit(node.annotation)
        value = ast.Constant(Ellipsis) if node.value is None else self.visit(node.value)
        old = self.thunk(ast.Name(name, ast.Load()))
        made = self.call("declare", ast.Constant(name), annotation, value, old)
        return ast.Assign([ast.Name(name, ast.Store())], made)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        op = ast.Constant(_OPERATOR[type(node.op)])
        value = self.visit(node.value)
        target = node.target
        if isinstance(target, ast.Name):
            old = self.thunk(ast.Name(target.id, ast.Load()))
            return ast.Assign([target], self.call("augment", ast.Constant(target.id), op, value, old))
        if isinstance(target, ast.Subscript):
            return ast.Expr(self.call("update", self.visit(target.value), self.index(target.slice), op, value))
        return self.refuse(node, "this augmented assignment stands", "assign to a name or an element")

    def index(self, node: ast.expr) -> ast.expr:
        """A subscript as an expression: slices become slice(...) calls."""
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.index(e) for e in node.elts], ast.Load())
        if isinstance(node, ast.Slice):
            parts = [ast.Constant(None) if p is None else self.visit(p) for p in (node.lower, node.upper, node.step)]
            return self.call("slice", *parts)
        return self.visit(node)

    def visit_For(self, node: ast.For) -> Any:
        if node.orelse:
            self.refuse(node, "`for ... else` stands", "use a flag from T.alloc_var")
        own = _target_names(node.target)
        names = [n for n in assigned_names(node.body) if n not in own]
        carried = read_first(node.body, names)
        names += own  # a run-time loop's variables end with it: used afterwards they are an error, not a stale value
        source = self.visit(node.iter)
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "range":
            source = self.call("ranged", source.func, *source.args)
        header = self.call("loop", source, self.strings(own))
        return self.looping(node.target, header, node.body, names, carried)

    def visit_While(self, node: ast.While) -> Any:
        if node.orelse:
            self.refuse(node, "`while ... else` stands", "use a flag from T.alloc_var")
        names = assigned_names(node.body)
        carried = read_first([ast.copy_location(ast.Expr(node.test), node), *node.body], names)
        # `while True` loops in the kernel; any other condition is asked whether it is known now.
        forever = ast.Constant(isinstance(node.test, ast.Constant) and bool(node.test.value))
        header = self.call("while_loop", self.thunk(self.visit(node.test)), forever)
        return self.looping(ast.Name(self.fresh("turn"), ast.Store()), header, node.body, names, carried)

    def looping(
        self, target: ast.expr, header: ast.expr, body: list[ast.stmt], names: list[str], carried: list[str]
    ) -> list[ast.stmt]:
        self.loop_depth += 1
        inner = self.block(body)
        self.loop_depth -= 1
        loop: ast.stmt = ast.For(target, header, inner, [])
        if not names:
            return [loop]
        before = self.fresh("before")
        snapshot = ast.Assign([ast.Name(before, ast.Store())], self.call("snapshot", self.peeks(names)))
        merged = self.call(
            "after_loop",
            self.strings(names),
            self.strings(carried),
            ast.Name(before, ast.Load()),
            self.peeks(names),
        )
        return [snapshot, loop, ast.Assign([self.store_names(names)], merged)]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned_names(node.body + node.orelse)
        handle = self.fresh("branch")
        get = lambda: ast.Name(handle, ast.Load())  # noqa: E731
        method = lambda name, *args: ast.Call(ast.Attribute(get(), name, ast.Load()), list(args), [])  # noqa: E731
        start = self.call("branch", self.visit(node.test), self.strings(names), self.peeks(names))
        result: list[ast.stmt] = [ast.Assign([ast.Name(handle, ast.Store())], start)]
        result.append(ast.If(method("then"), self.block(node.body), []))
        if names:
            result.append(ast.Assign([self.store_names(names)], method("restore", self.peeks(names))))
        result.append(ast.If(method("otherwise"), self.block(node.orelse) if node.orelse else [ast.Pass()], []))
        end = method("end", self.peeks(names))
        result.append(ast.Assign([self.store_names(names)], end) if names else ast.Expr(end))
        return result

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
        node.body = self.block(node.body)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = None if case.guard is None else self.visit(case.guard)
            case.body = self.block(case.body)
        return node

    def visit_Break(self, node: ast.Break) -> Any:
        return ast.If(self.call("leave", ast.Constant("break")), [ast.Break()], [])

    def visit_Continue(self, node: ast.Continue) -> Any:
        return ast.If(self.call("leave", ast.Constant("continue")), [ast.Continue()], [])

    def visit_Return(self, node: ast.Return) -> Any:
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return ast.Return(self.call("returning", value))

    def visit_Assert(self, node: ast.Assert) -> Any:
        return self.generic_visit(node)

    # -- expressions -------------------------------------------------------------------------------------
    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.visit(node.values[-1])
        for value in reversed(node.values[:-1]):
            result = self.call("logical", ast.Constant(op), self.thunk(self.visit(value)), self.thunk(result))
        return ast.copy_location(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self.call("logical_not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        return self.call("select", node.test, self.thunk(node.body), self.thunk(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        # a < b < c: the middle operands are evaluated once, through default arguments of a lambda.
        names = [f"__c{i}" for i in range(len(node.comparators) + 1)]
        pairs: list[ast.expr] = [
            ast.Compare(ast.Name(names[i], ast.Load()), [op], [ast.Name(names[i + 1], ast.Load())])
            for i, op in enumerate(node.ops)
        ]
        result = pairs[-1]
        for pair in reversed(pairs[:-1]):
            result = self.call("logical", ast.Constant("and"), self.thunk(pair), self.thunk(result))
        args = ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        return ast.Call(ast.Lambda(args, result), [node.left, *node.comparators], [])


def _target_names(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [n for e in target.elts for n in _target_names(e)]
    if isinstance(target, ast.Starred):
        return _target_names(target.value)
    return []
