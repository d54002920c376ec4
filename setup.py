"""Builds the kernels if it can. Everything else about the package is in pyproject.toml.

The extensions are optional twice over: without Cython they are not listed, without a compiler their
failure is a warning. The plain-Python kernels then run in their place.
"""

from setuptools import Extension, setup

KERNELS = [
    Extension(
        f"felice.{package}.kernels._kernels",
        sources=[f"src/felice/{package}/kernels/_kernels.pyx"],
        extra_compile_args=["-O3"],
    )
    for package in ("env", "protocol", "records")
]

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize(KERNELS, language_level=3, build_dir="build/cython")
    for extension in extensions:
        extension.optional = True  # set here: Cython does not carry it over

setup(ext_modules=extensions)
