"""Hosts of one machine: each has a network, a name, processes and mounts of its own, and an sshd; a switch joins them.
They are namespaces without names in the file system: they end with their first process, which ends with this one."""
from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import daemons

NEEDED = ("ip", "sshd", "ssh", "ssh-keygen", "unshare", "nsenter", "hostname")  # iproute2, openssh-server, util-linux
NETWORK = "10.213.7"
SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"

# What a host's first process does before it becomes sshd. Files that a user's own would be are bound over.
BEGIN = """
set -e
hostname {name}
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
mount --bind {folder}/hosts.etc /etc/hosts
mount --bind {folder}/{name}.boot_id /proc/sys/kernel/random/boot_id
ip link set lo up
exec {sshd} -D -e -f {folder}/{name}.sshd
"""
SSHD = """
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""
SSH = """
Host *
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
"""


def absent() -> str:
    """Why they cannot be, or nothing."""
    if lacks := daemons.missing(*NEEDED):
        return f"Debian's iproute2, openssh-server, openssh-client and util-linux are not all there: {lacks}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
         "hostname x && mount -t tmpfs tmpfs /run && ip link add br0 type bridge && "
         "ip link add to0 type veth peer name to1"],
        env={**os.environ, "PATH": SBIN}, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"the machine forbids namespaces: {tried.stderr.strip()[:200]}"


class Host:
    """`pid` is its first process, as this machine numbers it."""

    def __init__(self, folder: Path, name: str, *command: str, own: tuple[str, ...]) -> None:
        self.folder, self.name = folder, name
        self._unshare = daemons.start(folder, name, "unshare", *own, "--fork", "--kill-child=KILL", *command)
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        assert daemons.within(lambda: children.read_text().split(), 20), f"{name} has not begun"
        self.pid = int(children.read_text().split()[0])
        self._space = os.stat(f"/proc/{self.pid}/ns/pid").st_ino

    def network(self, *words: str) -> None:
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-n", *words], env={**os.environ, "PATH": SBIN},
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)

    def within(self, words: list[str], folder: Path) -> list[str]:
        """The command, as one of the host's."""
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m", "-p", "--", "sh", "-c",
                f"cd {shlex.quote(str(folder))} && exec {shlex.join(words)}"]

    def processes(self) -> dict[int, str]:
        """All but the first."""
        found = {}
        for each in Path("/proc").iterdir():
            try:
                if not each.name.isdecimal() or int(each.name) == self.pid:
                    continue
                if os.stat(each / "ns/pid").st_ino == self._space and "Z" != _state(each):
                    words = (each / "cmdline").read_bytes()
                    found[int(each.name)] = words.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    def end(self) -> None:
        self._unshare.kill()
        self._unshare.wait()


class Hosts:
    """Some, with addresses from .1 on, as their files of hosts have them."""

    def __init__(self, folder: Path, *names: str, absent: tuple[str, ...] = ("gone",)) -> None:
        self.folder = folder
        known = [f"{NETWORK}.{number} {name}\n" for number, name in enumerate((*names, *absent), 1)]
        (folder / "hosts.etc").write_text("127.0.0.1 localhost\n" + "".join(known))
        self._make_keys()
        self.switch = Host(folder, "switch", "sleep", "infinity", own=("--net", "--pid"))
        self.switch.network("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.network("ip", "link", "set", "bridge", "up")
        self.hosts = {name: self._host(name, number) for number, name in enumerate(names, 1)}
        for name in names:
            self._answers(name)

    def _make_keys(self) -> None:
        for each in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / each], check=True)
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(f"* {key}\n")
        (self.folder / "ssh_config").write_text(SSH.format(folder=self.folder))

    def _host(self, name: str, number: int) -> Host:
        sshd = shutil.which("sshd", path=SBIN)
        (self.folder / f"{name}.boot_id").write_text(f"00000000-0000-0000-0000-{number:012}\n")
        (self.folder / f"{name}.sshd").write_text(SSHD.format(folder=self.folder))
        made = Host(self.folder, name, "sh", "-c", BEGIN.format(name=name, folder=self.folder, sshd=sshd),
                    own=("--net", "--uts", "--mount", "--pid", "--mount-proc"))
        self.switch.network("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                            str(made.pid))
        self.switch.network("ip", "link", "set", f"to-{name}", "master", "bridge", "up")
        made.network("ip", "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        made.network("ip", "link", "set", "eth0", "up")
        return made

    def _answers(self, name: str) -> None:
        asked = self.hosts[name].within(["ssh", "-F", f"{self.folder}/ssh_config", "-oBatchMode=yes", name, "hostname"],
                                        self.folder)
        said: list[str] = []

        def answer() -> bool:
            done = subprocess.run(asked, env=daemons.environment(self.folder), capture_output=True, text=True,
                                  timeout=60, check=False)
            said[:] = [done.stdout, done.stderr]
            return done.stdout.strip() == name

        assert daemons.within(answer, 60), (name, said, (self.folder / f"{name}.log").read_text())

    def cut(self, name: str, again: str = "down") -> None:
        """The switch's port of a host: the others do not see it. "up": it is there again."""
        self.switch.network("ip", "link", "set", f"to-{name}", again)

    def left(self) -> dict[int, str]:
        """All processes of hosts but sshd's, of which one waits for long when its network is cut."""
        return {pid: words for each in self.hosts.values() for pid, words in each.processes().items()
                if not words.startswith("sshd:")}

    def close(self) -> None:
        for each in (*self.hosts.values(), self.switch):
            each.end()


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]
