"""nightlab: an autonomous overnight research lab for model training."""

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Reading the distribution's metadata costs 30 ms at every command start; only `--version` needs it.
    if name == "__version__":
        from importlib.metadata import version

        return version("nightlab")
    raise AttributeError(f"module 'nightlab' has no attribute {name!r}")
