"""What author code sees as `device`, and how a GPU's memory is kept to this process's slice of it.

Promises: torch's allocator fails beyond the slice less what a context takes, from the first import of torch after the
device was given on; a session made by `onnx_session` runs on the device that was asked for or not at all, and its arena
fails beyond the slice, too. Memory of `cpu` and `sim` devices is limited from outside, by the kernel. Standard library
only: torch and onnxruntime are used if author code imported them, or asks for a session.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable  # noqa: UP035 - older interpreters cannot subscript collections.abc.Callable

GPU_KINDS = ("cuda", "rocm")
PROVIDERS = {"cuda": "CUDAExecutionProvider", "rocm": "MIGraphXExecutionProvider"}
SHRINK = "memory.enable_memory_arena_shrinkage"
IDLE_SHARE = 0.5  # of the slice that torch may hold without using it between two passes


class DeviceUnavailable(RuntimeError):
    """The device that was asked for cannot be used by this library."""

    code = "device_unavailable"


class Device:
    """`kind` (cpu, sim, cuda, rocm), `index` among the devices this process sees, `bytes` that it may use now."""

    def __init__(self, kind: str, index: int, bytes: int, context_bytes: int = 0) -> None:
        self.kind, self.index, self.bytes = kind, index, bytes
        self._context_bytes = context_bytes

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind in GPU_KINDS

    @property
    def torch_device(self) -> str:
        """Return what `tensor.to(...)` takes. Raises DeviceUnavailable if this torch does not see the GPU."""
        if not self.is_gpu:
            return "cpu"
        torch = sys.modules.get("torch")
        if torch is not None and not torch.cuda.is_available():
            raise DeviceUnavailable(
                f"torch {torch.__version__} sees no {self.kind} device: install a build for it, and check the driver"
            )
        return f"cuda:{self.index}"

    @property
    def allocatable_bytes(self) -> int:
        """Return what allocators may have: the slice less what the context of a process takes."""
        return max(0, self.bytes - self._context_bytes)

    def onnx_session(self, model: Any, options: Any = None, share: float = 1.0) -> OnnxSession:
        """Return a session of onnxruntime on this device for a path or the bytes of a model.

        Args:
            options: onnxruntime.SessionOptions; else idle threads do not spin on cores that others need.
            share: of the slice, where several sessions divide it: the limit is each session's own.
        """
        return OnnxSession(self, model, options, share)

    def onnx_run_options(self) -> Any:
        """Return run options that give back at the end of the run what the arena holds and does not use.

        Every call of `run` with them asks the driver again, so they belong to the last one of a job. None without GPU.
        """
        if self.kind != "cuda":
            return None
        onnxruntime = importlib.import_module("onnxruntime")

        run_options = onnxruntime.RunOptions()
        run_options.add_run_config_entry(SHRINK, f"gpu:{self.index}")
        return run_options

    def grant(self) -> None:
        """Begin to use it: from here on torch has its limit, now or as soon as it is imported."""
        if not self.is_gpu:
            return
        if "torch" in sys.modules:
            self._limit_torch()
        else:
            sys.meta_path.insert(0, AfterImport("torch", self._limit_torch))

    def resize(self, size_bytes: int, context_bytes: int) -> None:
        """Have another slice; what is cached beyond it goes back first."""
        shrinks, self.bytes, self._context_bytes = size_bytes < self.bytes, size_bytes, context_bytes
        torch = self._torch()
        if torch is not None:
            if shrinks:
                gc.collect()
                torch.cuda.empty_cache()
            self._limit_torch()

    def begin_pass(self) -> None:
        """Forget the peak of what was before."""
        torch = self._torch()
        if torch is not None:
            torch.cuda.reset_peak_memory_stats(self.index)

    def end_pass(self, failed: bool = False) -> dict[str, int] | None:
        """Return what torch's allocator holds, used and had at most; None without one.

        What it holds and does not use is given back if it is much, as others may have it until the next pass; and
        after a failure, so that the next pass starts from the same base.
        """
        torch = self._torch()
        if torch is None:
            return None
        peak = torch.cuda.max_memory_reserved(self.index)
        if failed:
            gc.collect()
        used = torch.cuda.memory_allocated(self.index)
        if failed or torch.cuda.memory_reserved(self.index) - used > IDLE_SHARE * self.allocatable_bytes:
            torch.cuda.empty_cache()
        return {"reserved": torch.cuda.memory_reserved(self.index), "allocated": used, "peak": peak}

    def _torch(self) -> Any:
        """Return torch if this process has memory of the device through it."""
        torch = sys.modules.get("torch") if self.is_gpu else None
        return torch if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized() else None

    def _limit_torch(self) -> None:
        """The fraction counts the caching allocator only, hence the context is taken off first."""
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            total_bytes = torch.cuda.get_device_properties(self.index).total_memory
            fraction = min(1.0, self.allocatable_bytes / total_bytes)
            torch.cuda.set_per_process_memory_fraction(float(fraction), self.index)


class OnnxSession:
    """A session that is what onnxruntime.InferenceSession is; it is made anew when its slice has grown.

    The limit of an arena is fixed when its session is made: one that was made for a small job would run out of memory
    in a large one.
    """

    def __init__(self, device: Device, model: Any, options: Any, share: float) -> None:
        self._device, self._model, self._options, self._share = device, model, options, share
        self._made_for_bytes = 0
        self._session: Any = None
        self._current()

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Run the network."""
        return self._current().run(output_names, input_feed, run_options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    def _current(self) -> Any:
        grown = self._device.is_gpu and self._device.allocatable_bytes > self._made_for_bytes
        if self._session is None or grown:
            self._session = None
            gc.collect()  # the old arena goes before the new one comes
            self._made_for_bytes = self._device.allocatable_bytes
            self._session = self._open()
        return self._session

    def _open(self) -> Any:
        onnxruntime = importlib.import_module("onnxruntime")

        if not self._device.is_gpu:
            providers: list[Any] = ["CPUExecutionProvider"]
            return onnxruntime.InferenceSession(self._model, self._settings(onnxruntime), providers=providers)
        wanted = PROVIDERS[self._device.kind]
        if wanted not in onnxruntime.get_available_providers():
            there = ", ".join(onnxruntime.get_available_providers())
            raise DeviceUnavailable(f"onnxruntime {onnxruntime.__version__} has {there}: install onnxruntime-gpu")
        if self._device.kind == "cuda" and hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()  # CUDA and cuDNN of torch or of NVIDIA's wheels, if nothing else has them
        providers = [(wanted, self._limits())]
        session = onnxruntime.InferenceSession(self._model, self._settings(onnxruntime), providers=providers)
        if session.get_providers()[0] != wanted:  # it falls back to the CPU without a word
            raise DeviceUnavailable(f"onnxruntime could not use {wanted}; what it lacks stands above in the log")
        print(
            f"onnxruntime {onnxruntime.__version__} {wanted} {session.get_provider_options().get(wanted)}", flush=True
        )
        return session

    def _limits(self) -> dict[str, str]:
        """Provider options; as options of the session they would have no effect, and no error."""
        index = str(self._device.index)
        if self._device.kind != "cuda":
            return {"device_id": index}  # MIGraphX takes a limit and does not keep it
        return {
            "device_id": index,
            "gpu_mem_limit": str(int(self._made_for_bytes * self._share)),
            "arena_extend_strategy": "kSameAsRequested",
            "cudnn_conv_algo_search": "HEURISTIC",  # an exhaustive search takes gigabytes beside the arena
        }

    def _settings(self, onnxruntime: Any) -> Any:
        if self._options is not None:
            return self._options
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options


class AfterImport:
    """Have something done as soon as a module was imported, in the thread that imports it; once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Be asked for every module that is imported; answer for one."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then(module: Any) -> None:
                execute(module)
                self._then()

            spec.loader.exec_module = execute_then  # type: ignore[method-assign]
        return spec
