"""A file system in a file, that can lose its power: ext4 or xfs on a loop device, shut down without its journal."""
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of both file systems
WITHOUT_LOG = 2  # what is in memory only is gone, the journal's newest part too
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 1 << 14, 1 << 18
IMAGE_BYTES = {"ext4": 128 << 20, "xfs": 320 << 20}


def can_mount(kind):
    """Why not, or nothing."""
    if os.geteuid() != 0:
        return "only root mounts"
    if not shutil.which(f"mkfs.{kind}") and not Path(f"/usr/sbin/mkfs.{kind}").exists():
        return f"there is no mkfs.{kind}"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return None


def own_namespace():
    """Mounts of this process are seen by no other, and end with it: one that was copied would keep the device."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "no namespace of mounts")


def command(*words):
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": path})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class LoopMount:
    def __init__(self, directory, kind):
        self.image = Path(directory) / f"{kind}.image"
        self.point = Path(directory) / f"{kind}.mounted"
        self.kind = kind
        self.point.mkdir(parents=True, exist_ok=True)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_BYTES[kind])
        command(f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", str(self.image))
        self.mount()

    def mount(self):
        command("mount", "-t", self.kind, "-o", "loop,noatime,nosuid,nodev", str(self.image), str(self.point))

    def cut(self):
        """From now on nothing reaches the disk, and everything that asks is refused."""
        handle = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(handle)

    def unmount(self):
        for _ in range(50):
            try:
                command("umount", str(self.point))
                return
            except RuntimeError as error:
                last = error
                time.sleep(0.1)
        raise last

    def power_up(self):
        self.unmount()
        self.mount()

    def remove(self):
        try:
            self.unmount()
        finally:
            self.image.unlink(missing_ok=True)
