"""Builds the C kernels into the package if there is a compiler; without, torch does their work."""

import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


class Kernels(BuildHookInterface):
    """Compiles src/puda/native.c to libpuda.so beside it."""

    def initialize(self, version, build_data):
        """Compile; a wheel that holds the result is one for this platform."""
        target = Path(self.root, "src", "puda", "libpuda.so")
        target.unlink(missing_ok=True)
        compiler = os.environ.get("CC") or shutil.which("cc")
        if self.target_name != "wheel" or not compiler or platform.system() != "Linux":
            return
        flags = [*FLAGS, "-march=x86-64-v3"] if platform.machine() == "x86_64" else FLAGS
        source = target.with_name("native.c")
        command = [
            *compiler.split(),
            *flags,
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(target),
            "-lm",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"puda is built without its C kernels: {error}")
            return
        build_data["artifacts"].append("src/puda/libpuda.so")
        build_data["pure_python"] = False
        build_data["tag"] = (
            f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        )
