"""What errors say of memory and of the device: texts as the frameworks write them, and as they are raised here."""

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gpu_worker.child.memory_errors import MOST_BYTES, figures, is_oom, lost_by
from services.gpu_worker.process.memory import SUPPORTED

MIB, GIB = 1 << 20, 1 << 30
TORCH = (
    "{kind} out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.50 GiB of which 1.25 GiB is "
    "free. {process}Of the allocated memory 20.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch "
    "but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:"
    "True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/"
    "cuda.html#environment-variables)"
)
OTHERS = (
    "Process 4711 has 2.00 GiB memory in use. Including non-PyTorch memory, this process has 20.50 GiB memory in use. "
)
FULL = {"requested": 5 * GIB // 2, "free": 5 * GIB // 4, "reserved": 20 * GIB + 512 * MIB}
ARENA = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. Name:'/Conv' "
    "Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool, onnxruntime::Stream*) {}"
)
OUT_OF_MEMORY = {
    "torch": (TORCH.format(kind="CUDA", process=OTHERS), FULL),
    "torch within a fraction": (TORCH.format(kind="CUDA", process="2.00 GiB allowed; "), FULL),
    "torch 2.1": (TORCH.format(kind="CUDA", process="").replace("capacity", "capacty"), FULL),
    "torch on ROCm": (TORCH.format(kind="HIP", process="").replace("PYTORCH_ALLOC", "PYTORCH_HIP_ALLOC"), FULL),
    "torch with nothing left": (
        "CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 0 bytes is "
        "free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
        "unallocated.",
        {"requested": 14 * MIB, "free": 0, "reserved": 0},
    ),
    "torch 1": (
        "CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 6.00 GiB total capacity; 700.00 MiB already allocated; "
        "1.00 GiB free; 1.50 GiB reserved in total by PyTorch)",
        {"requested": 5 * GIB // 2, "free": GIB, "reserved": 3 * GIB // 2},
    ),
    "torch 0.4": (
        "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.50 MiB already allocated; "
        "9.00 GiB free; 4.50 MiB cached)",
        {"requested": 25 * MIB // 2, "free": 9 * GIB, "reserved": 9 * MIB // 2},
    ),
    "torch on CPU": (
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 838860800 bytes. Error code 12 (Cannot allocate memory)",
        {"requested": 838860800},
    ),
    "cuBLAS": ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", {}),
    "cuDNN": ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", {}),
    "the CUDA runtime": ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", {}),
    "numpy": (
        "Unable to allocate 1.50 GiB for an array with shape (201326592,) and data type float64",
        {"requested": 3 * GIB // 2},
    ),
    "numpy in whole numbers": (
        "Unable to allocate 512. MiB for an array with shape (67108864,) and data type float64",
        {"requested": 512 * MIB},
    ),
    "numpy in bytes": ("Unable to allocate 8 bytes for an array with shape (1,)", {"requested": 8}),
    "onnxruntime": (
        ARENA.format("Failed to allocate memory for requested buffer of size 939524096"), {"requested": 939524096}
    ),
    "onnxruntime at its arena's limit": (
        ARENA.format("Available memory of 34699008 is smaller than requested bytes of 945041920"),
        {"requested": 945041920, "free": 34699008},
    ),
    "onnxruntime on CUDA": (
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/"
        "cuda_allocator.cc ; line=47 ; expr=cudaMalloc((void**)&p, size);",
        {},
    ),
    "C++": ("std::bad_alloc", {}),
    "onnxruntime on Windows": ("Exception during initialization: bad allocation", {}),
    "the system": ("[Errno 12] Cannot allocate memory", {}),
}  # fmt: skip
CRASHES = (
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some "
    "other API call, so the stacktrace below might be incorrect.",
    "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "CUDA error: unspecified launch failure",
    "CUDA error: misaligned address",
    "CUDA error: an illegal instruction was encountered",
    "CUDA error: the launch timed out and was terminated",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k, &alpha)`",
    "HIP error: an illegal memory access was encountered",
    "HIP error: unspecified launch failure",
    "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=h ; expr=cudaStreamSynchronize(s)",
)
HARDWARE = (
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0 ; hostname=h",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU",
    "CUDA error: all CUDA-capable devices are busy or unavailable",
)
RAISES = """
    import resource, sys
    size = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
    {imports}
    size = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (size + (100 << 20), resource.RLIM_INFINITY))
    try:
        {call}
    except Exception as error:
        print(type(error).__name__, "|", error)
"""


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_out_of_memory_is_told_with_its_figures(name: str) -> None:
    text, expected = OUT_OF_MEMORY[name]
    assert (is_oom(RuntimeError(text)), figures(RuntimeError(text))) == (True, expected)
    assert lost_by(RuntimeError(text)) is None


@pytest.mark.parametrize("text", CRASHES)
def test_a_crash_on_the_device_loses_the_process(text: str) -> None:
    assert (lost_by(RuntimeError(text)), is_oom(RuntimeError(text))) == ("child_crashed", False)


@pytest.mark.parametrize("text", HARDWARE)
def test_a_fault_of_the_device_is_not_the_jobs_crash(text: str) -> None:
    assert (lost_by(RuntimeError(text)), is_oom(RuntimeError(text))) == ("device_unavailable", False)


@pytest.mark.parametrize(
    "text", ["shapes do not match", "", "CUDA error: invalid configuration argument", "no kernel image is available"]
)
def test_other_errors_are_neither(text: str) -> None:
    assert not is_oom(ValueError(text))
    assert lost_by(ValueError(text)) is None


def test_the_cause_counts_as_well_even_if_causes_form_a_circle() -> None:
    wrapped, inner = RuntimeError("it failed"), MemoryError("you tried to allocate 5 bytes")
    wrapped.__cause__, inner.__cause__ = inner, wrapped
    assert is_oom(wrapped)
    assert figures(wrapped) == {"requested": 5}
    assert is_oom(type("OutOfMemoryError", (RuntimeError,), {})(""))


@given(st.text(), st.integers(0, 10**40))
def test_whatever_a_text_says_figures_are_whole_and_bounded(text: str, size: int) -> None:
    for said in (text, f"Tried to allocate {size} GiB", f"{text} of which {size}.{size} MiB is free"):
        assert all(isinstance(n, int) and 0 <= n <= MOST_BYTES for n in figures(RuntimeError(said)).values())


@pytest.mark.skipif(not SUPPORTED, reason="RLIMIT_DATA is enforced on Linux only")
@pytest.mark.parametrize(
    ("imports", "call", "requested"),
    [
        ("import numpy", "numpy.zeros(1 << 27)", GIB),
        ("", "bytearray(1 << 30)", None),
        ("import mmap", "mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)", None),
    ],
)
def test_what_is_raised_here_is_told(imports: str, call: str, requested: int | None) -> None:
    """The texts of this machine's own versions, at a limit that the kernel enforces."""
    script = textwrap.dedent(RAISES).format(imports=imports, call=call)
    raised = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    name, _, text = raised.strip().partition(" | ")
    error = type(name, (MemoryError if "Memory" in name else OSError,), {})(text)
    assert is_oom(error), raised
    assert figures(error).get("requested") == requested
