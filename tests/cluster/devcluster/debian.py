"""The programs that come from the system: found, or installed with apt-get when that is possible.

Looked for by file and not by package, since other packages bring the same programs (containerd.io, say) and
must not be replaced.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import cache
from .say import Problem, say

# Root's PATH does not always have the sbin folders, where half of these are.
SEARCH = os.pathsep.join(
    filter(None, [os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
)
CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
# Program -> the Debian and Ubuntu package that has it.
PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "mount": "mount",
    "umount": "mount",
}
CNI_PACKAGE = "containernetworking-plugins"
POLICY = Path("/usr/sbin/policy-rc.d")


def program(name: str) -> str:
    """The path of a system program."""
    found = shutil.which(name, path=SEARCH)
    if found is None:
        raise Problem(f"the program `{name}` is missing (package {PROGRAMS.get(name, name)})")
    return found


def has(name: str) -> bool:
    """Whether a system program is there."""
    return shutil.which(name, path=SEARCH) is not None


def cni_folder() -> str | None:
    """The folder that has all network plugins."""
    for folder in CNI_FOLDERS:
        if all(os.access(f"{folder}/{plugin}", os.X_OK) for plugin in CNI_PLUGINS):
            return folder
    return None


def missing() -> dict[str, str]:
    """What is missing -> the package that has it."""
    lacking = {name: package for name, package in PROGRAMS.items() if not has(name)}
    if cni_folder() is None:
        lacking["CNI plugins " + ", ".join(CNI_PLUGINS)] = CNI_PACKAGE
    return lacking


def ensure() -> None:
    """Installs what is missing, or says exactly what it is and how to get it."""
    lacking = missing()
    if not lacking:
        return
    packages = sorted(set(lacking.values()))
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        names = "\n".join(f"  - {name} (package {package})" for name, package in sorted(lacking.items()))
        raise Problem(f"missing on this machine:\n{names}\n  On Debian or Ubuntu, as root: {' '.join(install)}")
    say(f"installing Debian packages: {' '.join(packages)}")
    had_containerd = has("containerd")
    log = cache.root() / "apt-get.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with cache.lock("apt-get", "waiting for another process that installs packages"), services_stay_off():
        try:
            cache.run_slow(install, "installing packages", log, env=environment)
        except Problem:
            say("that failed, perhaps for want of fresh package lists: apt-get update, and again")
            cache.run_slow(["apt-get", "update"], "apt-get update", log, env=environment)
            cache.run_slow(install, "installing packages", log, env=environment)
    if not had_containerd and has("systemctl"):
        # We run our own; the machine did not ask for another one, now or after its next boot.
        running = Path("/run/systemd/system").is_dir()
        subprocess.run(
            [program("systemctl"), "disable", *(["--now"] if running else []), "containerd"], capture_output=True
        )
    lacking = missing()
    if lacking:
        raise Problem(f"still missing after apt-get install: {', '.join(sorted(lacking))}; see {log}")


@contextlib.contextmanager
def services_stay_off() -> Iterator[None]:
    """While this lasts, installing a package does not start its service (Debian's policy-rc.d)."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
