"""Batches of several processes over torch.distributed."""
from __future__ import annotations

import json

from test_ranks import ended, script, start


def test_processes_over_gloo_share_an_epoch_and_end_together():
    """Rows of the loader; loops over loaders of 2 and 3 batches; a loader that fails on one rank."""
    codes, outputs, errors = ended(start(2, *script("""
import json
from torch.utils.data import DistributedSampler
from penstock import PeerError, Settings
from penstock.ranks.even import even
from penstock.run.loader import Loader, Loading
from penstock.run.rows import Share
data = list(range(11))
loader = Loader(data, Settings(micro_batch=2), Loading(), Share(rank, group.ranks))
batches = [batch.tolist() for batch in loader]
sampler = DistributedSampler(data)  # of the process group's rank
told = [sum(batches, []) == list(sampler), group.gathered(loader.position()) == [loader.position()] * 2]
told += [[*even(group.gathered, range(rank + 2))], [*even(group.gathered, range(rank + 2), "longest")]]
try:
    list(even(group.gathered, (1 // each for each in (1, 1 - rank, 2))))
except Exception as error:
    told += [type(error).__name__, str(error)]
print(json.dumps(told))
group.close()
""")))
    assert codes == [0, 0], errors
    words = "integer division or modulo by zero"
    assert [json.loads(each) for each in outputs] == [
        [True, True, [0, 1], [0, 1, 1], "PeerError",
         f"even(): rank 1 could not load batch 1: ZeroDivisionError: {words}"],
        [True, True, [0, 1], [0, 1, 2], "ZeroDivisionError", words]]
