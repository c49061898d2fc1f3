"""Find a layout for every unknown: strict rules first, then common ones, then free choices, to a fixed point."""

from __future__ import annotations

from collections.abc import Sequence

from tile_compiler.simt.errors import LayoutConflict
from tile_compiler.simt.layout.equations import Level, Rule, Solution


def solve(rules: Sequence[Rule], known: Solution | None = None) -> Solution:
    """The values of all unknowns of `rules`; `known` holds those that the user annotated.

    After each free choice the common rules run again, so that everything that follows from it is settled before the
    next choice. LayoutConflict if an operator cannot live with what others demanded.
    """
    solution = known or Solution()
    _settle(rules, solution, Level.STRICT)
    _settle(rules, solution, Level.COMMON)
    while _choose(rules, solution):
        _settle(rules, solution, Level.COMMON)
    for rule in rules:
        fault = rule.fault(solution.values)
        if fault is not None:
            unknown, why = fault
            raise LayoutConflict.between(rule, unknown, solution, why)
    return solution


def _settle(rules: Sequence[Rule], solution: Solution, level: Level) -> None:
    ties = [rule for rule in rules if rule.is_tie]
    changed = True
    while changed:
        changed = False
        for rule in rules:
            if _apply(rule, solution, level):
                changed = True
                while any(_apply(tie, solution, level) for tie in ties):
                    pass


def _apply(rule: Rule, solution: Solution, level: Level) -> bool:
    """Set what a rule proposes for unknowns that have no value yet; whether there were any."""
    changed = False
    for unknown, value in rule.propose(level, solution.values):
        if unknown not in solution.values:
            solution.set(unknown, value, rule)
            changed = True
    return changed


def _choose(rules: Sequence[Rule], solution: Solution) -> bool:
    """Let a rule that has a free choice make one: the first of those with the largest demand."""
    for rule in sorted(rules, key=lambda rule: -rule.demand):
        for unknown, value in rule.propose(Level.FREE, solution.values):
            if unknown not in solution.values:
                solution.set(unknown, value, rule)
                return True
    return False
