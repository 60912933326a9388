"""C++ kernels: views of scheduled nodes, and their rendering."""
