"""`mycc bench model.py`: a model compiled by mycc beside other ways to run it, each in a process of its own.

prepare   examples at a batch size, the package, the float64 reference      prepare.py
build     every peer in its process; do its outputs agree?                  peers.py, worker.py, process.py
measure   timings in turns, one process at a time                           compare.py
report    a table, JSON, an HTML page                                       report.py, page.py
"""
