"""Builds the C kernels into the package if there is a compiler; without, torch does their work."""

import os
import platform
import shutil
import subprocess
import sysconfig
from hashlib import sha256
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


class Kernels(BuildHookInterface):
    """Compiles src/puda/native.c to a library beside it that is named by the source's digest."""

    def initialize(self, version, build_data):
        """Compile; a wheel that holds the result is one for this platform."""
        source = Path(self.root, "src", "puda", "native.c")
        for old in source.parent.glob("libpuda-*.so"):
            old.unlink()
        target = source.with_name(f"libpuda-{sha256(source.read_bytes()).hexdigest()[:12]}.so")
        compiler = os.environ.get("CC") or shutil.which("cc")
        if self.target_name != "wheel" or not compiler or platform.system() != "Linux":
            return
        flags = [*FLAGS, "-march=x86-64-v3"] if platform.machine() == "x86_64" else FLAGS
        files = ["-shared", "-fPIC", str(source), "-o", str(target), "-lm"]
        try:
            subprocess.run([*compiler.split(), *flags, *files], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"puda is built without its C kernels: {error}")
            return
        build_data["artifacts"].append(f"src/puda/{target.name}")
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{system}"
