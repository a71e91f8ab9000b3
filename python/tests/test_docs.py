"""The examples of docstrings and of pages run, the types are right, and the stubs are complete."""

import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import chainsieve

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    value for value in vars(chainsieve).values() if isinstance(value, ModuleType) and value.__name__[11:12] != "_"
]


def documented(module: ModuleType) -> list[tuple[str, object]]:
    """The public names of a module, and the members of its classes."""
    found: list[tuple[str, object]] = [(module.__name__, module)]
    for name in module.__all__:
        value = getattr(module, name)
        found.append((f"{module.__name__}.{name}", value))
        if isinstance(value, type):
            members = [(member, vars(value)[member]) for member in vars(value) if member[0] != "_"]
            found += [(f"{module.__name__}.{name}.{member}", value) for member, value in members]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_documented_and_its_examples_run(module: ModuleType) -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    examples = 0
    for name, value in documented(module):
        text = getattr(value, "__doc__", None)
        assert text and text.strip(), f"{name} has no documentation"
        test = parser.get_doctest(text, {}, name, None, None)
        examples += len(test.examples)
        runner.run(test)
    assert runner.failures == 0
    assert examples >= 4, f"only {examples} examples in {module.__name__}"


def programs(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["python/README.md", "docs/python.md"])
def test_programs_of_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run in their order, at the root of the repository. Those that need a node are marked."""
    path = ROOT / page
    if not path.exists():
        pytest.skip("not in this wheel")
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"tmp_path": tmp_path}
    found = programs(path)
    assert found
    for program in found:
        code = compile(program, str(path), "exec")
        if "mainnet.example" not in program:
            exec(code, names)


def test_typed_program_runs() -> None:
    runpy.run_path(str(Path(__file__).with_name("typed_program.py")), run_name="__main__")


def test_types() -> None:
    """``mypy --strict`` accepts the program that uses every public name, the tests and the package."""
    here = Path(__file__).parent
    sources = [str(path) for path in here.glob("*.py")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "python/pyproject.toml"), *sources],
        capture_output=True,
        text=True,
        cwd=here,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_stubs_are_what_the_package_has() -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy.stubtest",
            "chainsieve",
            "--ignore-disjoint-bases",
            "--allowlist",
            "stubtest_allowed.txt",
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_typed_program_uses_every_public_name() -> None:
    text = Path(__file__).with_name("typed_program.py").read_text()
    for module in MODULES:
        for name, _ in documented(module)[1:]:
            last = name.rpartition(".")[2]
            assert re.search(rf"\b{last}\b", text), f"{name} is not in the typed program"
