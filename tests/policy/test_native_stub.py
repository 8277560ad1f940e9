"""The stub and the binary say the same: the names, and what each method takes."""

import ast
import inspect
from pathlib import Path

from native_examples import kernel_parts, needs_native

import potstill.policy

pytestmark = needs_native

STUB = ast.parse((Path(potstill.policy.__file__).parent / "_native.pyi").read_text(encoding="utf-8"))


def public(names):
    return {name for name in names if not name.startswith("_")}


def stub_class():
    return next(node for node in STUB.body if isinstance(node, ast.ClassDef))


def stub_methods():
    return {node.name: node for node in stub_class().body if isinstance(node, ast.FunctionDef)}


def parameters(function):
    """Names of a stub's parameters, without the first: those by position only, and the others."""
    listed = [argument.arg for argument in function.args.posonlyargs], [a.arg for a in function.args.args]
    return (listed[0][1:], listed[1]) if listed[0] else (listed[0], listed[1][1:])


def signature(thing):
    """The same from the text signature of the binary."""
    listed = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]
    by_position = [p.name for p in listed if p.kind is p.POSITIONAL_ONLY]
    return by_position, [p.name for p in listed if p.name not in by_position]


def test_the_module_has_the_names_of_the_stub():
    from potstill.policy import _native

    constants = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    functions = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
    assert {stub_class().name, *functions} | constants == public(vars(_native))
    for name, function in functions.items():
        taken = [argument.arg for argument in function.args.posonlyargs]
        assert signature(getattr(_native, name)) == (taken, []), name
    assert isinstance(_native.INSTRUCTIONS, str)


def test_the_kernel_has_the_methods_of_the_stub():
    from potstill.policy import _native

    assert public(stub_methods()) == public(vars(_native.Kernel))
    for name, function in stub_methods().items():
        thing = _native.Kernel if name == "__new__" else getattr(_native.Kernel, name)
        assert signature(thing) == parameters(function), name
        assert thing.__doc__


def test_the_kernel_is_final_as_the_stub_says():
    from potstill.policy import _native

    assert [decorator.id for decorator in stub_class().decorator_list] == ["final"]
    assert not _native.Kernel.__flags__ & 1 << 10  # Py_TPFLAGS_BASETYPE


def test_the_arguments_of_the_constructor_are_named_as_in_the_stub():
    from potstill.policy import _native

    assert list(kernel_parts()) == parameters(stub_methods()["__new__"])[1]
    assert isinstance(_native.Kernel(*kernel_parts().values()), _native.Kernel)
