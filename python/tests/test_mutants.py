"""Negative controls: the package with one guard removed must fail the test that is there for it."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from cores import NATIVE
from mutant import Mutant
from mutants_of_calls import CALLS
from mutants_of_configurations import CONFIGURATIONS
from penstock.native import library

try:
    LIBRARY = library.library()._name
except penstock.UsageError:
    LIBRARY = ""  # tests of it are skipped, and their mutants fail
HERE = Path(__file__).resolve().parent


MUTANTS = [
    Mutant("what a unit gives out lies in its weights", "unit_call.py",
           "each.clone() if self._is_view_of_weight(each) else each", "each",
           "test_modules.py::test_a_unit_may_give_its_weight_out"),
    Mutant("what was read outside goes unseen", "binding.py",
           "torch.autograd.graph.increment_version(parameter)", "pass",
           "test_bad_input.py::test_a_module_that_another_backward_has_left_cannot_be_used_again_unseen"),
    Mutant("each micro-batch overwrites the sum", "binding.py", "total.add_(gradient)", "total.copy_(gradient)",
           "test_modules.py::test_a_stack_of_blocks_trains_to_the_same_bits"),
    Mutant("a tie has two owners", "units.py", "if parameter not in places:", "if True:",
           "test_modules.py::test_a_stack_of_blocks_trains_to_the_same_bits"),
    Mutant("a gradient is summed twice", "binding.py", "            total.copy_(gradient)\n",
           "            total.copy_(gradient)\n            total.add_(gradient)\n",
           "test_modules.py::test_a_stack_of_blocks_trains_to_the_same_bits"),
    Mutant("hooks of the user's come before the sum", "binding.py", "hooks.update([own, *others])",
           "hooks.update([*others, own])",
           "test_optimizer.py::test_hooks_on_parameters_see_and_change_the_gradient"),
    Mutant("an older state_dict is given again", "model_state.py", "self._gathered.clear()", "pass",
           "test_state.py::test_state_dict_may_be_taken_between_forward_and_backward"),
    Mutant("what a unit writes into its own weights is lost unseen", "binding.py",
           "self._changed[self.names[parameter]] = None", "pass",
           "test_modules.py::test_a_weight_that_its_own_unit_changes_in_place_is_an_error_and_not_lost"),
    Mutant("loading truncates masters", "binding.py",
           'if not same_bits(self.read(parameter), values.to("cpu", parameter.dtype)):', "if True:",
           "test_state.py::test_loading_what_is_there_leaves_the_masters_alone"),
    Mutant("the scheduler has not had its turn", "kept_scheduler.py",
           "        self.take_turn()\n\n    def load", "\n    def load",
           "test_state.py::test_a_program_that_is_stopped_goes_on_from_its_last_step"),
    Mutant("a turn is not what it was given", "kept_scheduler.py", '"turn": client_values.to_text(self._turn,',
           '"turn": client_values.to_text(self._usual,',
           "test_resume.py::test_what_a_turn_was_given_is_committed_with_its_step"),
    Mutant("a scheduler that does not come back is taken", "kept_scheduler.py", "        self._check_loaded(before)\n", "",
           "test_resume.py::test_a_scheduler_that_would_not_come_back_is_refused_before_anything_is_opened"),
    Mutant("a scheduler is looked at when all is open", "initialize.py", "        check_given(lr_scheduler, mapped.groups)\n",
           "        pass\n", "test_resume.py::test_a_scheduler_that_would_not_come_back_is_refused_before_anything_is_opened"),
    Mutant("what a scheduler moved begins anew", "going_on.py", "**moved}.items():", "}.items():",
           "test_resume.py::test_a_training_with_any_scheduler_is_stopped_anywhere_and_ends_the_same"),
    Mutant("a script's rate goes before its scheduler's", "going_on.py", "{key: given[key] for key in RATES if key in given}",
           "{}", "test_resume.py::test_with_a_scheduler_rates_go_on_and_other_values_are_the_scripts"),
    Mutant("what differs is told as if nothing did", "run/progress.py",
           'LOGGER.warning("%s", text) if differs else self._note(text)', "self._note(text)",
           "test_resume.py::test_what_this_script_says_otherwise_is_told_as_a_warning"),
    Mutant("an opening that goes on does not say so", "engine.py", "self.progress.told(*", "tuple(",
           "test_resume.py::test_an_opening_that_goes_on_says_so_in_one_line"),
    Mutant("random states are the script's", "checkpoint.py", "random_states.put(text) if restore_random and text else []",
           "[]", "test_resume.py::test_a_step_goes_on_from_a_kill_in_the_middle_of_it"),
    Mutant("the GPUs' generators begin anew", "random_states.py", "            torch.cuda.set_rng_state(state, index)\n",
           "            pass\n", "test_resume.py::test_the_states_of_all_gpus_are_taken_and_put_where_they_are_there"),
    Mutant("random states are never left", "checkpoint.py", "if restore_random and text", "if text",
           "test_resume.py::test_random_states_are_left_where_they_are_not_wanted_or_seeded_later"),
    Mutant("a new store has no random states", "going_on.py", ", random_states.KEY: random_states.taken()}", "}",
           "test_resume.py::test_a_kill_before_the_first_step_begins_with_the_same_draws"),
    Mutant("what remembers too much is committed", "checkpoint.py",
           "    _check_room({**engine.core.user_state, **state})\n", "",
           "test_resume.py::test_a_scheduler_that_remembers_too_much_is_refused_before_its_update"),
    Mutant("micro-batches of the run before count", "checkpoint.py",
           "engine.micro_steps = engine.counted_from = int(", "engine.micro_steps = int(",
           "test_resume.py::test_another_number_of_micro_batches_begins_whole"),
    Mutant("a refused step counts its micro-batch", "engine.py",
           "        except UsageError:  # nothing has changed\n            self.micro_steps -= 1\n",
           "        except UsageError:  # nothing has changed\n",
           "test_resume.py::test_a_buffer_that_changes_its_size_is_named_with_its_remedy"),
    Mutant("a buffer may change its size", "buffers.py", "        self._check(_layout(now.items()))\n", "",
           "test_resume.py::test_a_buffer_that_changes_its_size_is_named_with_its_remedy"),
    Mutant("a buffer may come", "buffers.py", "if not self._first and not any(map(_has_persistent, self._modules)):",
           "if not self._first:", "test_resume.py::test_a_buffer_that_comes_to_a_model_without_any_is_named"),
    Mutant("fp16 overflows for ever", "optimizer.py",
           "if self.loss_scale is not None and self.loss_scale.is_in_vain():", "if False:",
           "test_overflow.py::test_steps_that_overflow_at_the_least_scale_end_in_an_error"),
    Mutant("overflows above the least scale are in vain", "loss_scale.py",
           "if overflow and (self.fixed or self.value <= self.least) else 0", "if overflow else 0",
           "test_overflow.py::test_overflows_above_the_least_scale_are_no_error"),
    Mutant("a step counts as clipped by its norm alone", "optimizer.py", "return limit / (norm + 1e-6) < 1",
           "return limit < norm", "test_overflow.py::test_a_clipped_step_is_one_whose_factor_is_below_one"),
    Mutant("a store that went back remembers clips", "optimizer.py",
           "self.updates, self.clipped_in_a_row = updates, A_RUN_OF_CLIPS", "self.updates = updates",
           "test_overflow.py::test_a_store_that_went_back_speculates_as_at_a_beginning"),
    Mutant("a value that does not come back is kept", "client_values.py", "if compare and not same(_decode(tree), value):",
           "if False:", "test_client_values.py::test_a_value_that_would_not_be_found_again_is_refused"),
    Mutant("a member of anything may be read", "client_values.py",
           "if not (isinstance(found, type) and issubclass(found, enum.Enum)) or member not in found.__members__:",
           "if False:", "test_client_values.py::test_reading_runs_no_code_and_imports_nothing"),
    Mutant("a snapshot is written over", "checkpoint.py", "    name = _free_name(place)\n",
           "    name = 'store'\n    _remove_snapshots(place, but=None)\n",
           "test_checkpoints.py::test_one_of_them_is_whole_wherever_its_replacement_is_cut"),
    Mutant("what a killed call has left stays", "checkpoint.py", "    _remove_snapshots(place, but=used)\n", "",
           "test_checkpoints.py::test_one_of_them_is_whole_wherever_its_replacement_is_cut"),
    Mutant("a snapshot beside Trainer's files may be half", "hugging_face.py",
           'new = path.with_name(path.name + ".new")', "new = path",
           "test_checkpoints.py::test_a_snapshot_beside_trainers_files_is_whole_or_not_there"),
    Mutant("buffers are not committed", "engine.py", "self.optimizer.extra = self.kept_buffers.packed", "pass",
           "test_state.py::test_a_program_that_is_stopped_goes_on_from_its_last_step"),
    Mutant("a parameter of another shape is taken", "files/incoming.py",
           "*self._extra(), *self._of_another_shape(own)]", "*self._extra()]",
           "test_import.py::test_all_that_does_not_fit_is_said_at_once_and_nothing_is_made"),
    Mutant("ties with two values are taken", "files/incoming.py",
           "if not same_bits(self._read", "if False and (self._read",
           "test_import.py::test_a_tie_may_be_given_by_any_of_its_names_and_not_by_two_values"),
    Mutant("parameters on meta are replaced, not made real", "files/incoming.py",
           "    torch.utils.swap_tensors(there, new)", "    there = new",
           "test_import.py::test_a_model_has_the_values_of_the_directory_wherever_it_was"),
    Mutant("a buffer that nobody wrote is taken", "files/rebuild.py",
           "return bool((elements == PATTERN).all(dim=1).any())", "return False",
           "test_import.py::test_a_buffer_that_is_made_again_is_found_whole_or_refused"),
    Mutant("an index may name files elsewhere", "files/weights_dir.py", "if outside:", "if False:",
           "test_import.py::test_an_index_is_not_believed"),
    Mutant("tensors may overlap", "files/safetensors_file.py", "if info.begin != at:", "if info.begin > at:",
           "test_safetensors.py::test_a_hostile_header_is_refused_by_what_is_wrong_with_it"),
    Mutant("an error of JSON comes out as it is", "files/safetensors_file.py",
           "except (ValueError, RecursionError) as error:\n            raise self._refuse(f\"its header is no JSON",
           "except MemoryError as error:\n            raise self._refuse(f\"its header is no JSON",
           "test_safetensors.py::test_of_thousands_of_mutated_files_each_is_read_or_refused"),
    Mutant("what is read is kept", "files/incoming.py", "self._last = None  # not two at once",
           "self.__dict__.setdefault('kept', []).append(self._last)",
           "test_import.py::test_about_one_parameter_is_in_memory_at_a_time"),
    Mutant("pages are never given back", "zero/spill.py", "each.madvise(mmap.MADV_DONTNEED)", "pass",
           "test_zero_init.py::test_the_model_is_never_whole_in_memory"),
    Mutant("copies of modules are not spilled", "zero/__init__.py", "if func is torch.Tensor.clone and", "if False and",
           "test_zero_init.py::test_any_module_is_as_it_would_be"),
    Mutant("an export has its name before it is whole", "files/export.py",
           'new = place.with_name(f".{place.name}.penstock-unfinished")\n    shutil', "new = place\n    shutil",
           "test_export.py::test_a_process_that_is_killed_leaves_no_directory_or_a_whole_one"),
    Mutant("fp32 is made of the weights", "files/export.py", '"master" if master else "weight"', '"weight"',
           "test_export.py::test_fp32_is_the_masters_and_other_types_are_the_weights"),
    Mutant("a plan is of the model as it is, not as it will be", "run/plan.py",
           "    if dtype is None:\n        return spec", "    if True:\n        return spec",
           "test_plan.py::test_so_it_is_with_every_setting_that_counts"),
    Mutant("a plan counts no bytes beside the weights", "run/plan.py", "if count > 0 else None", "if False else None",
           "test_plan.py::test_buffers_are_planned_for_and_are_no_parameters"),
    Mutant("units that are alike are all computed", "run/stand_in.py", "if self.kinds.allowed and", "if False and",
           "test_measured_compute.py::test_units_that_are_alike_are_computed_twice_in_a_pass_and_the_others_take_as_long"),
    Mutant("what was stood in for takes no time", "run/measured_compute.py",
           "if stay.stood_in and self._kind(stay) in measured", "if False",
           "test_measured_compute.py::test_units_that_are_alike_are_computed_twice_in_a_pass_and_the_others_take_as_long"),
    Mutant("a unit that fills a list is stood in for", "run/stand_in.py",
           "or self._kind(args, kwargs) != kind)", "or False)",
           "test_measured_compute.py::test_a_unit_that_fills_a_list_of_the_callers_is_always_computed"),
    Mutant("a plan leaves the model without its gradients", "run/measured_compute.py",
           "            parameter.grad = gradient", "            pass",
           "test_measured_compute.py::test_the_model_stays_as_it_is"),
    Mutant("a copy that reads the model goes unseen", "run/measured_compute.py",
           "if any(each.grad is not None for each in gradients):", "if False:",
           "test_measured_compute.py::test_a_copy_that_reads_the_model_itself_is_told_and_leaves_no_gradient"),
    Mutant("an interrupt is raised within an update", "run/ending.py",
           "self._before = signal.signal(signal.SIGINT, self._note)", "pass",
           "test_ending.py::test_a_loop_that_catches_the_interrupt_goes_on", native=True),
    Mutant("an interrupted pass is not ended", "run/ending.py", "        core.end_pass()\n", "",
           "test_ending.py::test_a_program_that_ends_has_committed_its_newest_step", native=True),
    Mutant("the end of the interpreter commits nothing", "run/ending.py", "        settle(core)\n        core.close()",
           "        core.close()", "test_ending.py::test_a_program_that_ends_has_committed_its_newest_step",
           native=True),
    Mutant("a fork ends its parent's training", "run/ending.py", "if os.getpid() != process:", "if False:",
           "test_ending.py::test_a_child_of_the_process_ends_nothing_and_says_nothing", native=True),
    Mutant("an engine is never collected", "binding.py", "lambda each: each.penstock_keeper._take(each)", "self._take",
           "test_ending.py::test_an_engine_that_nobody_has_any_more_gives_its_store_back", native=True),
    Mutant("an output that fails ends the training", "run/progress.py", "        except Exception:\n",
           "        except MemoryError:\n",
           "test_progress.py::test_an_output_that_fails_ends_the_telling_and_not_the_training"),
    Mutant("an output that fails is tried again", "run/progress.py", "            self._broken = True",
           "            pass", "test_progress.py::test_an_output_that_fails_ends_the_telling_and_not_the_training"),
    Mutant("an interrupt is lost while a store is opened", "native/core.py",
           "        if refused:\n            self._call", "        if False:\n            self._call",
           "test_progress.py::test_an_interrupt_while_a_store_is_opened_is_not_lost", native=True),
    Mutant("a compiler looks into the engine", "engine.py", "    @torch.compiler.disable\n    def _model_is_called",
           "    def _model_is_called", "test_compile.py::test_what_is_compiled_as_a_whole_trains_all_the_same_and_is_told"),
    Mutant("a compiler looks into the visits", "unit_call.py", "    @torch.compiler.disable\n", "",
           "test_compile.py"),
    Mutant("ties are written twice", "files/export.py", "kept = kept_names(self._model, self._state)",
           "kept = list(self._state)", "test_export.py::test_ties_are_written_once_and_buffers_as_well"),
    Mutant("what is laid aside may be older than what a unit is given", "shelf.py",
           "laid.version == tensor._version", "True",
           "test_shelf.py::test_what_is_changed_in_place_is_laid_aside_as_it_was", native=True),
    Mutant("a graph from before a store went back reads what is there now", "shelf.py",
           "if packed.opening != self._core.opening:", "if False:",
           "test_shelf.py::test_a_graph_from_before_a_store_went_back_is_an_error", native=True),
    Mutant("what nobody refers to stays laid aside", "shelf.py", "                self._core.drop(turn)\n",
           "                pass\n", "test_shelf.py", native=True),
    *CALLS,
    *CONFIGURATIONS,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_is_of_the_code_that_is_there(mutant):
    assert (HERE.parent / "penstock" / mutant.file).read_text().count(mutant.old) == 1


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_is_found(mutant, tmp_path):
    if mutant.native != NATIVE:  # the stand-in poisons what nobody reads any more
        pytest.skip("of the other core")
    package = tmp_path / "penstock"
    shutil.copytree(HERE.parent / "penstock", package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / mutant.file).read_text()
    (package / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    done = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test],
                          cwd=HERE, capture_output=True, text=True,
                          env={**os.environ, "PENSTOCK_PACKAGE_AT": str(tmp_path), "PENSTOCK_LIBRARY": LIBRARY})
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "FAILED" in done.stdout
