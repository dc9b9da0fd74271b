"""Stands in for torch on one CUDA device: the calls a child makes, in order, and an allocator that keeps its limit."""

import os

__version__ = "2.13.0"
CALLS = []  # what was asked of torch.cuda, in order


class OutOfMemoryError(RuntimeError):
    pass


class cuda:
    total = 24 << 30
    fraction, allocated, cached, peak, initialized = 1.0, 0, 0, 0, False

    @classmethod
    def is_available(cls):
        return os.environ.get("CUDA_VISIBLE_DEVICES") != ""

    @classmethod
    def is_initialized(cls):
        return cls.initialized

    @classmethod
    def get_device_properties(cls, device):
        cls.initialized = True
        return type("Properties", (), {"total_memory": cls.total})

    @classmethod
    def set_per_process_memory_fraction(cls, fraction, device):
        assert isinstance(fraction, float)
        assert 0 <= fraction <= 1
        cls.initialized, cls.fraction = True, fraction
        CALLS.append(("fraction", round(fraction * cls.total)))

    @classmethod
    def take(cls, size):
        """Allocate; not torch's own, where a tensor does it."""
        CALLS.append(("take", size))
        reserved = max(cls.cached, cls.allocated + size)
        if reserved > cls.fraction * cls.total:
            limit = round(cls.fraction * cls.total) >> 20
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size >> 20}.00 MiB. {limit} MiB allowed")
        cls.allocated, cls.cached, cls.peak = cls.allocated + size, reserved, max(cls.peak, reserved)

    @classmethod
    def free(cls, size):
        cls.allocated -= size

    @classmethod
    def empty_cache(cls):
        CALLS.append(("empty_cache",))
        cls.cached = cls.allocated

    @classmethod
    def reset_peak_memory_stats(cls, device=None):
        cls.peak = cls.cached

    @classmethod
    def max_memory_reserved(cls, device=None):
        return cls.peak

    @classmethod
    def memory_reserved(cls, device=None):
        return cls.cached

    @classmethod
    def memory_allocated(cls, device=None):
        return cls.allocated
