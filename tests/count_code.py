"""Lines of code: neither blank, comment nor docstring, of all tracked Python but generated files.

tests/count_code.py             by package
tests/count_code.py --total     code lines and files of all but the tests, and code lines of the tests
"""

import ast
import subprocess
import sys
import tokenize
from collections import Counter
from io import StringIO
from pathlib import Path, PurePath

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
_DEPTHS = {"src": 3, "services": 4}
"""How many names of a path make a package."""


def code_lines(text: str) -> int:
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    lines = {
        number
        for token in tokens
        if token.type not in _NO_CODE
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines -= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return len(lines)


def main(arguments: list[str]) -> int:
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True)
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name in listed.stdout.splitlines():
        if "_pb2" in name:
            continue
        parts = PurePath(name).parts
        package = "/".join(parts[: min(_DEPTHS.get(parts[0], 1), len(parts) - 1)]) or "."
        lines[package] += code_lines(Path(name).read_text())
        files[package] += 1
    product = sum(lines.values()) - lines["tests"], sum(files.values()) - files["tests"]
    if "--total" not in arguments:
        for package in sorted(lines):
            sys.stdout.write(f"{lines[package]:7,} lines in {files[package]:4} files  {package}\n")
    sys.stdout.write(f"code: {product[0]} lines in {product[1]} files; tests: {lines['tests']} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
