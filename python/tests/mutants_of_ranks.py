"""Guards of what several ranks do together."""
from __future__ import annotations

from mutant import Mutant

RANKS = [
    # The loader's rows.
    Mutant("all ranks have rank 0's rows", "run/rows.py", "range(self.first + self._share.rank, end, ranks)", "range(self.first, end, ranks)",
           "test_loader_of_ranks.py::test_rows_are_those_of_torchs_distributed_sampler"),
    Mutant("the last turn is of nobody", "run/rows.py", "if drop_last else -(-rows // each)", "if True else 0",
           "test_loader_of_ranks.py::test_rows_are_those_of_torchs_distributed_sampler"),
    Mutant("the last turn is filled up though it is dropped", "run/rows.py", "if turn and not self._drop_last:", "if turn:",
           "test_loader_of_ranks.py::test_a_stream_is_read_by_all_and_has_as_many_batches_as_rows_in_order"),
    Mutant("a place is in rows of one rank", "run/loader.py", "place.row(of[1] * ranks)", "place.row(of[1])",
           "test_loader_of_ranks.py::test_whatever_ranks_go_on_each_row_of_the_epoch_is_taken_once"),
    Mutant("a second change of ranks forgets the first", "run/loader.py", "return self.first + self.batches * rows", "return self.batches * rows",
           "test_loader_of_ranks.py::test_whatever_ranks_go_on_each_row_of_the_epoch_is_taken_once"),
    Mutant("an epoch that other ranks have ended is given without rows", "run/loader.py", "return self.batches > 0 or self.first > 0",
           "return self.batches > 0", "test_loader_of_ranks.py::test_a_stop_in_the_middle_and_at_the_end"),
    Mutant("what one rank commits is another text", "run/loader.py", "[] if self._share == ALONE and at.first == 0 else", "[] if False else",
           "test_loader_of_ranks.py::test_what_one_rank_commits_stays_as_it_was_and_is_read"),
    Mutant("a stream of several workers has a row", "run/loader.py", "if self._order is None and self.num_workers > 1:", "if False:",
           "test_loader_of_ranks.py::test_a_stream_of_several_workers_goes_on_with_as_many_ranks_alone"),
    Mutant("another seed goes on at the row", "run/loader.py", "if alone or (rows, order) != (own_rows, own_order):", "if alone:",
           "test_loader_of_ranks.py::test_other_data_begin_the_next_epoch_and_rank_0_tells_it"),
    Mutant("batches of another size go on with one rank", "run/loader.py", "if alone or (rows, order)", "if (rows, order)",
           "test_loader_of_ranks.py::test_other_data_begin_the_next_epoch_and_rank_0_tells_it"),
    Mutant("each rank tells of other data", "run/loader.py", "        if self._share.rank == 0:\n", "        if True:\n",
           "test_loader_of_ranks.py::test_other_data_begin_the_next_epoch_and_rank_0_tells_it"),
    Mutant("workers of all ranks draw the same", "run/loader.py", "torch.empty(self._share.rank, dtype", "torch.empty(0, dtype",
           "test_loader_of_ranks.py::test_workers_of_each_rank_have_seeds_of_their_own_and_those_of_rank_0_are_one_ranks"),
    # even().
    Mutant("a loader that fails tells nobody", "ranks/even.py", "            with contextlib.suppress(Exception):", "            if False:",
           "test_even.py::test_an_exception_of_a_loader_is_its_ranks_and_its_words_are_the_others"),
    Mutant("ranks that are gone hide the exception", "ranks/even.py", "with contextlib.suppress(Exception):", "with contextlib.nullcontext():",
           "test_even.py::test_a_rank_raises_its_own_exception_though_the_others_are_gone"),
    Mutant("an interrupt waits for the others", "ranks/even.py", "except Exception as problem:", "except BaseException as problem:",
           "test_even.py::test_an_interrupt_is_told_to_nobody"),
    Mutant("who has left a loop is taken for who is in it", "ranks/even.py", "or turn[:2] != mine[:2] for", "for",
           "test_even.py::test_who_leaves_alone_and_begins_the_next_loop_is_told_where_all_are"),
    Mutant("another call is taken for a batch", "ranks/even.py", "if any(not isinstance(turn, Turn) or ", "if any(",
           "test_even.py::test_who_leaves_alone_and_calls_something_else_is_told"),
    Mutant("a batch that is given again counts again", "ranks/even.py", "self._counts = batch is not OVER", "self._counts = True",
           "test_even.py::test_all_end_together"),
    Mutant("nothing counts behind a loop", "ranks/even.py", "        finally:\n            self._counts = True", "        finally:\n            pass",
           "test_even.py::test_batches_count_again_behind_a_loop_however_it_ends"),
    Mutant("what is in the place of a batch is given", "ranks/even.py", "mine.number == 0 and any(there) and", "False and",
           "test_even.py::test_nobody_waits_for_a_loader_without_batches"),
]
