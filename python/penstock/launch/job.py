"""A job: which processes there are, where, and what each is told of itself."""
from __future__ import annotations

from dataclasses import dataclass

from .hostfile import Host, Hosts

PORT = 29500  # as torchrun and DeepSpeed have it


@dataclass(frozen=True)
class Job:
    """Ranks are numbered host by host, slot by slot."""

    hosts: Hosts
    master_addr: str = "127.0.0.1"
    master_port: int = PORT

    @property
    def size(self) -> int:
        return sum(len(each.slots) for each in self.hosts)

    def first_rank(self, node: int) -> int:
        return sum(len(each.slots) for each in self.hosts[:node])

    def ranks_of(self, node: int) -> range:
        first = self.first_rank(node)
        return range(first, first + len(self.hosts[node].slots))


def one_process(master_port: int = PORT) -> Job:
    """On this machine."""
    return Job((Host("localhost", (0,)),), master_port=master_port)


def variables_of(job: Job, node: int, local_rank: int) -> dict[str, str]:
    """What torchrun, DeepSpeed's launcher and Lightning tell a process by its environment."""
    of_host, nodes = len(job.hosts[node].slots), len(job.hosts)
    values = {"RANK": job.first_rank(node) + local_rank, "WORLD_SIZE": job.size, "LOCAL_RANK": local_rank,
              "LOCAL_WORLD_SIZE": of_host, "LOCAL_SIZE": of_host, "NODE_RANK": node, "GROUP_RANK": node,
              "CROSS_RANK": node, "GROUP_WORLD_SIZE": nodes, "CROSS_SIZE": nodes, "MASTER_ADDR": job.master_addr,
              "MASTER_PORT": job.master_port}
    return {name: str(value) for name, value in values.items()}
