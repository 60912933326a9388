"""`python model.pkg`: says what the package is; `python model.pkg --run` runs it."""

import importlib
import pkgutil
import sys

if __name__ == "__main__":
    path = __loader__.archive
    (name,) = [module.name for module in pkgutil.iter_modules([path]) if module.ispkg]
    sys.exit(importlib.import_module(name + ".runtime.program").main(path))
