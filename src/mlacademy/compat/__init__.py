"""Drop-in modules: the public libraries' Python calls over our kernels."""
