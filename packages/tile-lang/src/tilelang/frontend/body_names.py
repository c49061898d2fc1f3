"""Which names a body of statements assigns, and which it reads before."""

from __future__ import annotations

import ast


def assigned_names(body: list[ast.stmt]) -> list[str]:
    """Names that a body assigns, in order, nested functions and comprehensions left out."""
    found: dict[str, None] = {}

    class Finder(ast.NodeVisitor):
        def visit_Name(self, node: ast.Name) -> None:
            if isinstance(node.ctx, ast.Store):
                found[node.id] = None

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            found[node.name] = None

        def visit_Lambda(self, node: ast.Lambda) -> None:
            return

        visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda  # type: ignore[assignment]

    for stmt in body:
        Finder().visit(stmt)
    return list(found)


def read_first(body: list[ast.stmt], names: list[str]) -> list[str]:
    """Those of `names` whose value from before the body is read in it before the body assigns them.

    Conservative: an assignment under an `if` or in a loop does not count as having happened.
    """
    exposed: dict[str, None] = {}
    wanted = set(names)

    def reads(node: ast.AST, done: set[str]) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child.id in wanted - done:
                exposed[child.id] = None

    def scan(stmts: list[ast.stmt], done: set[str]) -> set[str]:
        done = set(done)
        for stmt in stmts:
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                if stmt.value is not None:
                    reads(stmt.value, done)
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                for target in targets:
                    reads(target, done)
                    done |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            elif isinstance(stmt, ast.AugAssign):
                reads(stmt.value, done)
                if isinstance(stmt.target, ast.Name):
                    if stmt.target.id in wanted - done:
                        exposed[stmt.target.id] = None
                    done.add(stmt.target.id)
                else:
                    reads(stmt.target, done)
            elif isinstance(stmt, ast.If):
                reads(stmt.test, done)
                done |= scan(stmt.body, done) & scan(stmt.orelse, done)
            elif isinstance(stmt, ast.For):
                reads(stmt.iter, done)
                own = {n.id for n in ast.walk(stmt.target) if isinstance(n, ast.Name)}
                scan(stmt.body, done | own)
            elif isinstance(stmt, ast.With):
                for item in stmt.items:
                    reads(item.context_expr, done)
                    if item.optional_vars is not None:
                        done |= {n.id for n in ast.walk(item.optional_vars) if isinstance(n, ast.Name)}
                done |= scan(stmt.body, done)
            else:
                reads(stmt, done)
        return done

    scan(body, set())
    return [n for n in names if n in exposed]
