"""Builds the record kernels if it can. Everything else about the package is in pyproject.toml.

The extension is optional twice over: without Cython it is not listed, without a compiler its
failure is a warning. The plain-Python kernels then run in its place.
"""

from setuptools import Extension, setup

KERNELS = Extension(
    "felice.records.kernels._kernels",
    sources=["src/felice/records/kernels/_kernels.pyx"],
    extra_compile_args=["-O3"],
)

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize([KERNELS], language_level=3, build_dir="build/cython")
    for extension in extensions:
        extension.optional = True  # set here: Cython does not carry it over

setup(ext_modules=extensions)
