"""python without_torch.py PACKAGE INPUTS.npz OUTPUTS.npz [THREADS]: runs a package where torch cannot be imported.

Inputs are named CASE.ENTRY.INPUT; the outputs CASE.ENTRY.NUMBER, in the order of the flattened result.
"""

import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "sympy"):
            raise ImportError(f"{name} is not here")


sys.meta_path.insert(0, NoTorch())

import mycc  # noqa: E402
import numpy as np  # noqa: E402

package, inputs, outputs, *threads = sys.argv[1:]
model = mycc.load(package, threads=int(threads[0]) if threads else None, check="full")
cases: dict[tuple[str, str], dict[str, np.ndarray]] = {}
for key, array in np.load(inputs).items():
    case, entry, name = key.split(".")
    cases.setdefault((case, entry), {})[name] = array
results = {}
for (case, name), arrays in cases.items():
    entry = model.entry(name)
    found = entry.run_flat([arrays[port.name] for port in entry.signature.inputs])
    results |= {f"{case}.{name}.{i}": np.asarray(array) for i, array in enumerate(found)}
np.savez(outputs, **results)
assert "torch" not in sys.modules
