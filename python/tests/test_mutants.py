"""Negative controls: the package with one guard removed must fail the test that is there for it."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock
from cores import NATIVE
from penstock.native import library

try:
    LIBRARY = library.library()._name
except penstock.UsageError:
    LIBRARY = ""  # tests of it are skipped, and their mutants fail
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str
    native: bool = False  # the test is of the core on NVMe


MUTANTS = [
    Mutant("Python's generator is not restored", "surroundings.py", "random.setstate(self._python)", "pass",
           "test_modules.py::test_pythons_generator_is_as_it_was_in_the_recompute"),
    Mutant("buffers are not restored", "surroundings.py", "each.tensor.data.copy_(each.before)", "pass",
           "test_modules.py::test_an_awkward_module_trains_to_the_same_bits"),
    Mutant("buffers keep what the recompute did", "surroundings.py", "each.tensor.data.copy_(content)", "pass",
           "test_modules.py::test_an_awkward_module_trains_to_the_same_bits"),
    Mutant("a unit is left before its backward has read it", "visits.py",
           "    def leave_again(self, call: Call) -> None:\n        self._closed(call)",
           "    def leave_again(self, call: Call) -> None:\n        self._closed(call)\n        self.end()",
           "test_modules.py::test_a_stack_of_blocks_trains_to_the_same_bits"),
    Mutant("the calling unit is not held", "visits.py", "*_reads(self.open), *beside)", "*())",
           "test_modules.py::test_an_awkward_module_trains_to_the_same_bits"),
    Mutant("the calling unit is not held in backward", "visits.py",
           "*_reads(ancestors)))", "))",
           "test_modules.py::test_an_awkward_module_trains_to_the_same_bits"),
    Mutant("a checkpoint of the user's is not held as a whole", "visits.py", "(*self._region.units, *around)", "around",
           "test_modules.py::test_the_users_own_checkpoint_is_recomputed_once"),
    Mutant("a checkpoint of the user's is not recognised", "unit_call.py",
           "call.foreign = _in_checkpoint(parent)", "call.foreign = False",
           "test_modules.py::test_the_users_own_checkpoint_is_recomputed_once"),
    Mutant("a checkpoint within a unit is not recognised", "unit_call.py",
           "return parent is None or innermost() is not parent.hooks", "return parent is None",
           "test_modules.py::test_a_units_own_checkpoint_may_call_another_unit"),
    Mutant("the unit around a checkpoint of its own is not held", "visits.py",
           "(*self._region.units, *around)", "self._region.units",
           "test_modules.py::test_a_units_own_checkpoint_may_call_another_unit"),
    Mutant("a backward within another one's nodes takes its weights away", "visits.py",
           "self._arrive(reads, self._read_late())", "self._arrive(reads, this.reads)",
           "test_modules.py::test_a_hook_within_a_units_backward_may_use_another_unit"),
    Mutant("a hook takes the weights of the unit in whose backward it calls another", "visits.py",
           "or not checkpoint):", "or False):",
           "test_modules.py::test_a_hook_within_a_units_backward_may_use_another_unit"),
    Mutant("what a unit gives out lies in its weights", "unit_call.py",
           "each.clone() if self._is_view_of_weight(each) else each", "each",
           "test_modules.py::test_a_unit_may_give_its_weight_out"),
    Mutant("a checkpoint of the layer's is not recognised", "unit_call.py", "if own is None:", "if True:",
           "test_transformers.py::test_gradient_checkpointing_of_the_model_is_recomputed_once"),
    Mutant("what is read outside is not held", "visits.py", "self._outside = (*self._outside, unit)", "pass",
           "test_modules.py::test_a_term_on_weights_in_the_loss_has_its_gradient"),
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
    Mutant("a cache is filled twice", "surroundings.py", "if not _is_cache(value):", "if True:",
           "test_transformers.py::test_a_cache_that_is_filled_in_training_is_filled_once"),
    Mutant("the caller's containers are copies", "unit_call.py", "if self._first is not None:", "if False:",
           "test_modules.py::test_an_awkward_module_trains_to_the_same_bits"),
    Mutant("an older state_dict is given again", "model_state.py", "self._gathered.clear()", "pass",
           "test_state.py::test_state_dict_may_be_taken_between_forward_and_backward"),
    Mutant("what a unit writes into its own weights is lost unseen", "binding.py",
           "self._changed[self.names[parameter]] = None", "pass",
           "test_modules.py::test_a_weight_that_its_own_unit_changes_in_place_is_an_error_and_not_lost"),
    Mutant("free pages stay where a large gradient comes", "visits.py", "heap.give_back_free_pages()", "pass",
           "test_modules.py::test_free_pages_go_back_before_a_large_gradient"),
    Mutant("free pages go back before each kept graph, too", "visits.py",
           "self.enter_again(call)\n        self.leave_again(call)", "self.recompute(call)\n        self.leave_again(call)",
           "test_modules.py::test_free_pages_go_back_before_a_large_gradient"),
    Mutant("units that are stood in for keep no graph", "run/stand_in.py",
           "self.activations.as_another(graph, known.unit)", "pass",
           "test_measured_compute.py::test_graphs_are_kept_as_the_engine_keeps_them"),
    Mutant("kept and recomputed units are of one kind", "run/stand_in.py",
           "self.unit.name in self.activations.kept, own", "own",
           "test_measured_compute.py::test_units_whose_graphs_are_kept_are_computed_once_and_the_others_twice"),
    Mutant("loading truncates masters", "binding.py",
           'if not same_bits(self.read(parameter), values.to("cpu", parameter.dtype)):', "if True:",
           "test_state.py::test_loading_what_is_there_leaves_the_masters_alone"),
    Mutant("the scheduler has not had its turn", "checkpoint.py", "    engine.lr_scheduler.step()\n", "",
           "test_state.py::test_a_program_that_is_stopped_goes_on_from_its_last_step"),
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
    Mutant("a plan draws numbers", "run/measured_compute.py", "        torch.set_rng_state(torchs)", "        pass",
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
    Mutant("a graph has weights as the memory that they were", "kept_graph.py", "found = binding.weight_at(tensor)",
           "found = None", "test_kept.py::test_a_stack_of_blocks_trains_to_the_same_bits"),
    Mutant("a kept graph's unit is not visited before its nodes run", "kept_graph.py",
           "            self._visits.read_again(self.call)\n", "            pass\n",
           "test_kept.py::test_each_unit_is_visited_once_in_a_backward_before_its_first_node"),
    Mutant("what is laid aside may be older than what a unit is given", "shelf.py",
           "laid.version == tensor._version", "True",
           "test_shelf.py::test_what_is_changed_in_place_is_laid_aside_as_it_was", native=True),
    Mutant("what is laid aside is known by its address", "shelf.py",
           "        known = self._known.get(tensor)\n", "        known = self.__dict__.setdefault('by_address', {}).setdefault("
           "tensor.data_ptr(), None)\n        self.by_address[tensor.data_ptr()] = (lambda each: lambda: each)(self._lay(tensor)) "
           "if known is None else known\n        known = self.by_address[tensor.data_ptr()]\n",
           "test_shelf.py::test_memory_that_is_used_again_is_not_taken_for_what_was_there", native=True),
    Mutant("a graph from before a store went back reads what is there now", "shelf.py",
           "if packed.opening != self._core.opening:", "if False:",
           "test_shelf.py::test_a_graph_from_before_a_store_went_back_is_an_error", native=True),
    Mutant("what nobody refers to stays laid aside", "shelf.py", "                self._core.drop(turn)\n",
           "                pass\n", "test_shelf.py", native=True),
    Mutant("hooks of the program's do not see what units are given", "shelf.py",
           "if innermost() is not None:", "if False:",
           "test_shelf.py::test_what_a_checkpoint_or_hooks_of_the_users_keep_is_theirs", native=True),
    Mutant("a kept tensor may change in place", "kept_graph.py", "if kept.version != _version(kept.tensor):", "if False:",
           "test_kept.py::test_what_was_changed_in_place_since_the_forward_is_an_error_as_in_torch"),
    Mutant("a kept graph is of any step", "kept_graph.py", "if binding.state_of(parameter) != kept.state:", "if False:",
           "test_kept.py::test_a_graph_from_before_an_update_is_an_error"),
    Mutant("a kept graph reads released weights", "kept_graph.py", "if isinstance(parameter, Released):", "if False:",
           "test_kept.py::test_a_weight_that_is_not_there_is_an_error_and_no_other_bytes"),
    Mutant("a kept graph keeps itself", "kept_graph.py", "self.tensor, self.version = tensor.detach(),",
           "self.tensor, self.version = tensor,", "test_kept.py::test_a_forward_without_backward_is_given_back"),
    Mutant("weights within other layouts are no copies", "kept_graph.py", "Values(tensor.detach().clone())",
           "Values(tensor)", "test_kept.py::test_weights_within_a_layout_that_comes_up_later_are_copied"),
    Mutant("conjugated weights are kept as weights", "kept_graph.py", "if tensor.is_conj() or tensor.is_neg():", "if False:",
           "test_kept.py::test_a_weight_that_is_seen_conjugated_is_no_reason_for_wrong_bytes"),
    Mutant("graphs count for ever", "activations.py", "        self.held_bytes -= count\n", "",
           "test_kept.py::test_what_is_held_is_what_was_measured_and_is_given_back"),
    Mutant("graphs are kept without a budget", "activations.py",
           "return self.budget_bytes is None or total <= self.budget_bytes", "return True",
           "test_kept.py::test_those_nearest_to_the_loss_are_kept_as_far_as_the_budget_goes"),
    Mutant("the graphs farthest from the loss are kept", "activations.py", "in reversed(self._measured.items()):",
           "in self._measured.items():",
           "test_kept.py::test_those_nearest_to_the_loss_are_kept_as_far_as_the_budget_goes"),
    Mutant("a longer batch is thought to take no more", "activations.py",
           "max(1.0, call.given_bytes / own.given_bytes) if own.given_bytes else 1.0", "1.0",
           "test_kept.py::test_a_longer_batch_makes_room_for_itself"),
    Mutant("graphs that are there do not count", "activations.py", "self._fits(self.held_bytes + growth", "self._fits(growth",
           "test_kept.py::test_two_forwards_before_a_backward_share_the_budget"),
    Mutant("hooks of the program's are passed over", "unit_call.py", "        if inside is None or", "        if True or",
           "test_kept.py::test_hooks_of_the_program_see_what_they_saw"),
    Mutant("a layer's own checkpointing is passed over", "unit_call.py",
           "if own is not None and", "if False and",
           "test_kept.py::test_a_layer_whose_own_checkpointing_is_on_is_recomputed_and_named"),
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
