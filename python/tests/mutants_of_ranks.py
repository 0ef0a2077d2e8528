"""Guards of what ranks say to each other when one fails."""
from __future__ import annotations

from mutant import Mutant

BOARD, RANKS_ = "test_board.py::test_", "test_ranks.py::test_"
RANKS = [
    Mutant("what was put first is replaced", "ranks/board.py", "self._store.compare_set(key, \"\", value)",
           "(self._store.set(key, value), value.encode())[1]", f"{BOARD}what_was_put_first_stands_and_what_was_put_last"),
    Mutant("a board waits for whoever waits", "ranks/board.py", "own_connection(store))  #", "store)  #",
           f"{BOARD}it_does_not_wait_for_a_program_that_waits_for_a_key"),
    Mutant("a store that does not answer is asked again", "ranks/board.py", "if self._lost is None:", "if True:",
           f"{BOARD}a_store_that_does_not_answer_is_lost"),
    Mutant("who was stopped has lost the board", "ranks/board.py", "range(self._seconds)", "range(1)",
           f"{BOARD}a_process_that_was_stopped_still_gets_its_answer"),
    Mutant("an abort ends no call that is under way", "ranks/group.py", "        self._connections.cut()\n", "",
           f"{RANKS_}a_board_is_what_all_ranks_see_and_a_stopped_rank_holds_up_nothing"),
    Mutant("what listens is cut", "ranks/connections.py", "                    connection.getpeername()", "                    pass",
           f"{BOARD}connections_are_cut_and_nothing_else"),
    Mutant("whoever has the number of a connection is cut", "ranks/connections.py", "there.get(number) == name", "True",
           f"{BOARD}connections_are_cut_and_nothing_else"),
    Mutant("what was connected before is cut", "ranks/connections.py", " if before.get(number) != name}", "}",
           f"{BOARD}connections_are_cut_and_nothing_else"),
    Mutant("runs share a board", "ranks/group.py", "self.gathered(uuid.uuid4().hex)[0]", "\"run\"",
           f"{RANKS_}a_board_is_what_all_ranks_see_and_a_stopped_rank_holds_up_nothing"),
    Mutant("an exception is not said to the others", "ranks/last_words.py", "        sys.excepthook = self._hook\n", "",
           f"{RANKS_}a_rank_that_is_gone_ends_the_others_at_once_and_one_of_all_says_why"),
    Mutant("all ranks print what they know from one", "ranks/last_words.py", "self._is_ours = stands.by == self._rank if stands else",
           "self._is_ours = True if stands else", f"{BOARD}the_first_exception_is_the_cause_and_the_only_one_that_is_printed"),
    Mutant("without a board all ranks speak", "ranks/last_words.py", " or self._rank == 1", " or True",
           f"{BOARD}without_a_board_one_speaks_of_what_all_have_seen"),
    Mutant("without a board an error is said by nobody", "ranks/last_words.py",
           "not isinstance(problem, PeerError) or self._rank == 1", "self._rank == 1",
           f"{BOARD}without_a_board_one_speaks_of_what_all_have_seen"),
    Mutant("rank 0 takes the board with it", "ranks/last_words.py", "while self._board.get(", "while False and self._board.get(",
           f"{BOARD}rank_0_stays_until_the_others_have_read_it"),
    Mutant("rank 0 keeps its connections while it stays", "ranks/group.py", "        self._channels.clear()", "        pass",
           f"{RANKS_}rank_0_that_has_the_board_is_a_rank_as_all_others"),
    Mutant("a fork is a rank", "ranks/last_words.py", " or os.getpid() != self._process:", ":", f"{BOARD}a_fork_is_no_rank"),
    Mutant("a hook above is taken away", "ranks/last_words.py", "        if sys.excepthook is self._hook:", "        if True:",
           f"{BOARD}it_goes_when_it_is_uninstalled_whoever_came_above_it"),
    Mutant("a cause is longer than the board takes", "ranks/last_words.py", "[:MOST // 4 * 3]", "",
           f"{BOARD}words_have_an_end"),
]
