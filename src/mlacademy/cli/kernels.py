"""List, compile, disassemble and run CUDA kernels: the course's, or your own file.

    mlacademy kernels list                          the course's kernels, and what works on this machine
    mlacademy kernels compile wgmma_tile --ptx      CUDA C++ to PTX; says what the compiler finds wrong
    mlacademy kernels disassemble wgmma_tile        the machine code (SASS)
    mlacademy kernels run wgmma_tile                run it on test inputs and compare with float64 or exact answers
    mlacademy kernels run wgmma_tile --trace t.json as before; modelled cycles, who waited on what, and a timeline

No GPU is needed: kernels run on the emulator unless --device cuda is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlacademy.cli.terminal import CommandError, complain, console

if TYPE_CHECKING:
    from mlacademy.gpu import Module


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="default: list")
    actions.add_parser("list", help="list the course's kernels and say what works on this machine")

    compiling = actions.add_parser("compile", help="compile a kernel file")
    _add_source(compiling)
    compiling.add_argument("--ptx", action="store_true", help="print the PTX")
    compiling.add_argument("-o", "--output", type=Path, metavar="FILE", help="write FILE.ptx or FILE.cubin")

    disassembling = actions.add_parser("disassemble", help="print a kernel's machine code (SASS)")
    _add_source(disassembling)
    disassembling.add_argument("--kernel", metavar="NAME", help="this kernel only (default: all of the file)")

    running = actions.add_parser("run", help="run one of the course's kernels and check its result")
    running.add_argument("name", help="a kernel, as listed; or `all`")
    running.add_argument("--device", choices=("emulator", "cuda"), default="emulator", help="default: emulator")
    running.add_argument("--seed", type=int, default=0, help="of the inputs, and of --order seeded (default: 0)")
    running.add_argument(
        "--order",
        choices=("eager", "lazy", "seeded"),
        default="eager",
        help="when the emulator completes copies: at once (the default), as late as possible, or at random",
    )
    running.add_argument("--scale", type=int, default=1, metavar="N", help="inputs about N times as large (default: 1)")
    running.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write what happened, in modelled cycles, for https://ui.perfetto.dev, and print a summary",
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a .cu file, or the name of one of the course's kernels")
    parser.add_argument("--arch", default="sm_90a", help="sm_90a (Hopper, the default) or sm_100a (Blackwell)")


def run(options: argparse.Namespace) -> int:
    actions = {"list": _list, "compile": _compile, "disassemble": _disassemble, "run": _run}
    return actions[options.action or "list"](options)


def what_works() -> list[str]:
    """One sentence each about compiling, emulating and running on a GPU on this machine."""
    from mlacademy.gpu import Device, nvrtc

    identity = nvrtc.identity()
    version = "" if identity is None else dict(part.split("=") for part in identity.split())["nvidia-cuda-nvrtc"]
    compiling = f"NVRTC {version} compiles kernels here." if version else f"{nvrtc.missing_sentence()}."
    reasons = Device.obstacles()
    emulating = "The emulator runs them." if reasons["emulator"] is None else f"No emulator: {reasons['emulator']}."
    if reasons["cuda"] is None:
        device = Device("cuda")
        on_gpu = f"The GPU {device.name} ({device.arch}) runs them."
    else:
        on_gpu = f"No GPU: {reasons['cuda']}."
    return [compiling, emulating, on_gpu]


def _list(options: argparse.Namespace) -> int:
    from mlacademy.gpu.includes import header_layer
    from mlacademy.gpu.samples import SAMPLES, summary

    for path in sorted(header_layer().glob("**/*.cu")):
        name = path.relative_to(header_layer()).with_suffix("").as_posix()
        called = " (called by mlacademy.ops)" if "/" in name else " (no test inputs)"
        ready = "" if name in SAMPLES else called
        console().print(f"[bold]{name:<31}[/] {summary(path.read_text(encoding='utf-8'))}{ready}")
    console().print()
    for sentence in what_works():
        console().print(sentence, markup=False)
    return 0


def _module(options: argparse.Namespace) -> Module:
    from mlacademy.gpu import CompileError, CompilerMissing, compile
    from mlacademy.gpu.includes import header_layer

    own = Path(options.source)
    shipped = header_layer() / f"{options.source.removesuffix('.cu')}.cu"
    source = own if own.is_file() else shipped
    if not source.is_file():
        raise CommandError(f"there is no file {options.source} and no kernel of that name: `mlacademy kernels list`")
    try:
        module = compile(source, arch=options.arch)
    except CompileError as error:
        complain(str(error))
        raise CommandError(f"{source.name} does not compile for {options.arch}") from error
    except CompilerMissing as error:
        raise CommandError(str(error)) from error
    for warning in module.warnings:
        complain(str(warning))
    return module


def _compile(options: argparse.Namespace) -> int:
    if options.output and options.output.suffix not in (".ptx", ".cubin"):
        raise CommandError(f"--output must end in .ptx or .cubin, got {options.output}")
    started = time.perf_counter()
    module = _module(options)
    seconds = time.perf_counter() - started
    if options.ptx:
        sys.stdout.write(module.ptx)
        return 0
    how = {"compiled": "compiled", "cache": "found in the cache", "shipped": "shipped with the course"}[module.origin]
    console().print(f"{module.name} for {module.arch}: {how} in {seconds:.2f} s")
    for kernel in (module[symbol] for symbol in module.kernels):
        takes = f"; {kernel.resources}" if kernel.resources else ""
        console().print(
            f"  {kernel.base_name}({', '.join(map(str, kernel.params))}){takes}", markup=False, soft_wrap=True
        )
    if options.output:
        cubin = options.output.suffix == ".cubin"
        options.output.write_bytes(module.cubin() if cubin else module.ptx.encode())
        console().print(f"written to {options.output}", markup=False)
    return 0


def _disassemble(options: argparse.Namespace) -> int:
    module = _module(options)
    try:
        sys.stdout.write(module.sass(options.kernel))
    except (KeyError, RuntimeError) as error:
        raise CommandError(str(error.args[0])) from error
    return 0


def _run(options: argparse.Namespace) -> int:
    from mlacademy.gpu import CompileError, Device
    from mlacademy.gpu.samples import SAMPLES
    from mlacademy.gpu.samples import run as run_sample

    names = list(SAMPLES) if options.name == "all" else [options.name]
    if names[0] not in SAMPLES:
        raise CommandError(f"there is no kernel {options.name!r} to run; there are {', '.join(SAMPLES)}")
    if options.scale < 1:
        raise CommandError(f"--scale must be at least 1; got {options.scale}")
    try:
        device = Device(options.device)
    except RuntimeError as error:
        raise CommandError(str(error)) from error
    tracing = {"trace": True} if options.trace else {}
    if tracing and (options.device == "cuda" or len(names) > 1):
        raise CommandError("--trace is for one kernel on the emulator: the cost model times what the emulator runs")
    order = {"order": options.order, "seed": options.seed} if options.device == "emulator" else {}
    wrong = []
    for name in names:
        started = time.perf_counter()
        try:
            report, outcome = run_sample(name, device, inputs=options.seed, scale=options.scale, **order, **tracing)
        except (CompileError, RuntimeError) as error:
            raise CommandError(f"{name}: {error}") from error
        console().print(str(report), markup=False)
        verdict = "right" if outcome.right else "WRONG"
        console().print(
            f"{verdict}: {outcome.elements:,} values, largest error {outcome.error:.3g} of its bound "
            f"({outcome.bound}); {time.perf_counter() - started:.2f} s in all\n",
            markup=False,
        )
        if report.trace is not None:
            console().print(report.trace.summary(), markup=False)
            console().print(f"wrote {report.trace.to_perfetto(options.trace)}: open it in https://ui.perfetto.dev")
        wrong += [] if outcome.right else [name]
    if wrong:
        complain(f"mlacademy kernels run: {', '.join(wrong)} gave a wrong result")
    return 1 if wrong else 0
