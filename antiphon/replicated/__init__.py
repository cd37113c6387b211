"""Objects that stay equal on every replica: what applications build on."""

from antiphon.replicated.replica import Replicated, replicate

__all__ = ["Replicated", "replicate"]
