"""Code generation: scheduled nodes become kernel views, rendered by the templates; equal kernels are rendered once."""
