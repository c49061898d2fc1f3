"""LLVM text under construction."""

from __future__ import annotations


class Text:
    """Lines with fresh names, and blocks that leave for `slow` where a condition is false."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"%{stem}.{self._count}"

    def put(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def value(self, text: str, stem: str = "v") -> str:
        """A new name for the result of an instruction."""
        name = self.fresh(stem)
        self.put(f"{name} = {text}")
        return name

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def label(self, stem: str) -> str:
        return self.fresh(stem)[1:]

    def need(self, condition: str, otherwise: str = "slow") -> None:
        """Go on where `condition` (an i1) holds."""
        following = self.label("ok")
        self.put(f"br i1 {condition}, label %{following}, label %{otherwise}")
        self.block(following)

    def compare(self, how: str, a: str, b: object, kind: str = "i64") -> str:
        return self.value(f"icmp {how} {kind} {a}, {b}")

    def load(self, pointer: str, offset: int, kind: str = "i64", stem: str = "v") -> str:
        place = pointer if offset == 0 else self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return self.value(f"load {kind}, ptr {place}", stem)

    def store(self, kind: str, value: object, pointer: str, offset: int) -> None:
        place = pointer if offset == 0 else self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        self.put(f"store {kind} {value}, ptr {place}")

    def allocate(self, size: int) -> str:
        return self.value(f"alloca [{size} x i8], align 16")
