"""Every complaint of the field (1 to 62) has a test that must exist, or a reason why it has none.

The tables of this folder name the complaints that their cases answer; ``ELSEWHERE`` names tests of other folders.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.field import test_images, test_pdfs, test_reading

ROOT = Path(__file__).resolve().parents[2]
ITEMS = range(1, 63)

# complaint: tests, file::function
ELSEWHERE: dict[int, tuple[str, ...]] = {
    5: ("tests/pipeline/test_recovery.py::test_ramp_goes_from_cheap_to_dear_and_every_attempt_is_recorded",),
    7: ("tests/pipeline/test_reading.py::test_a_page_that_reaches_its_cap_is_truncated_and_says_so",),
    8: ("tests/decoder/test_engine.py::test_the_context_ends_the_answer",),
    12: ("tests/pipeline/test_postprocess.py::test_markdown_is_tidied",),
    13: ("tests/decoder/test_oracles.py::test_logits_equal_those_of_an_independent_float32_engine",),
    15: (
        "tests/pipeline/test_reading.py::test_a_page_reads_the_same_alone_among_32_first_and_last_in_the_queue",
        "tests/decoder/test_engine.py::test_a_page_gives_the_same_bits_alone_among_others_and_in_any_chunk",
    ),
    16: (
        "tests/jobs/test_kill.py::test_run_killed_at_a_named_point_ends_as_an_uninterrupted_one",
        "tests/jobs/test_kill.py::test_run_killed_at_random_moments_ends_as_an_uninterrupted_one",
    ),
    17: ("tests/field/test_runs.py::test_one_bad_document_among_ten_fails_alone_and_is_retried_alone",),
    18: ("tests/field/test_runs.py::test_a_cut_document_among_good_ones_stops_nothing",),
    19: ("tests/field/test_runs.py::test_every_page_of_every_input_is_counted_and_written",),
    20: ("tests/jobs/test_cli.py::test_expected_error_is_one_message_with_its_code",),
    21: ("tests/field/test_pdfs.py::test_a_page_whose_text_layer_is_empty_is_drawn",),
    22: ("tests/field/test_runs.py::test_output_is_where_its_input_says_however_it_is_written",),
    23: ("tests/field/test_runs.py::test_inputs_of_one_name_are_each_written",),
    24: ("tests/field/test_runs.py::test_every_name_is_read_and_written",),
    25: ("tests/jobs/test_runner.py::test_full_disk_pauses_the_run_which_goes_on_by_itself",),
    26: (
        "tests/field/test_runs.py::test_originals_stay_as_they_were",
        "tests/jobs/test_runner.py::test_page_of_a_file_that_was_replaced_fails_and_is_not_mixed",
    ),
    27: ("tests/field/test_runs.py::test_pages_keep_their_order_though_they_end_out_of_it",),
    28: ("tests/jobs/test_scale.py::test_memory_is_flat_and_pages_take_as_long_over_5000_pages",),
    29: ("tests/field/test_pdfs.py::test_the_parent_never_loads_pdfium",),
    30: ("tests/field/test_pdfs.py::test_a_page_renders_the_same_in_a_fresh_process_as_after_hostile_files",),
    32: (
        "tests/pipeline/test_producer.py::test_memory_limit_holds",
        "tests/pipeline/test_producer.py::test_bad_page_fails_alone",
    ),
    33: ("tests/decoder/test_engine.py::test_threads_do_not_change_a_bit_of_steps_that_mix_reading_and_decoding",),
    39: ("tests/field/test_runs.py::test_each_document_has_its_own_password",),
    41: ("tests/pipeline/test_geometry.py::test_box_of_a_drawn_square_maps_back_to_the_square",),
    51: (
        "tests/jobs/test_watch.py::test_a_file_that_grows_for_ten_seconds_is_taken_once_and_whole",
        "tests/jobs/test_watch.py::test_create_then_fill_is_taken_filled",
        "tests/jobs/test_watch.py::test_rename_into_place_is_taken_under_its_new_name",
        "tests/jobs/test_watch.py::test_a_copy_with_an_old_time_is_taken",
    ),
    52: ("tests/jobs/test_watch.py::test_a_hint_brings_the_scan_forward_but_not_the_file",),
    53: ("tests/jobs/test_watch.py::test_an_output_inside_the_input_is_refused",),
    54: ("tests/jobs/test_watch.py::test_without_any_event_everything_is_found_by_scans",),
    55: ("tests/jobs/test_watch.py::test_a_bad_file_leaves_its_reason_and_is_not_tried_again_until_its_bytes_change",),
    56: ("tests/jobs/test_watch.py::test_files_that_were_there_before_are_taken",),
    57: ("tests/jobs/test_watch.py::test_partial_system_and_foreign_files_are_left_alone",),
    58: (
        "tests/pipeline/test_sinks_schemas.py::test_file_of_all_pages_is_valid",
        "tests/pipeline/test_sinks_pdf.py::test_text_is_found_in_order_and_no_pixel_changes",
    ),
    59: ("tests/pipeline/test_sinks_schemas.py::test_file_of_one_page_is_valid",),
    60: (
        "tests/pipeline/test_recovery.py::test_words_have_the_probability_of_their_tokens",
        "tests/pipeline/test_sinks_schemas.py::test_confidences_stay_with_their_words",
    ),
    61: ("tests/field/test_coverage.py::test_installing_brings_no_framework",),
    62: ("tests/pipeline/test_sinks_schemas.py::test_provenance_is_in_every_file",),
}

NOT_COVERED: dict[int, str] = {
    11: "whether a model guesses at gaps or modernises spelling is a matter of the model: nothing in the engine adds words, "
    "and the evaluation of runs against a truth measures it",
    14: "a quantised file whose vocabulary rows were swapped has the shape of a good one: only reading a known page shows it; "
    "files whose parts do not fit each other are refused at load, which other tests show",
}


def covered() -> dict[int, int]:
    """Complaint -> how many cases and tests answer it."""
    counts = dict.fromkeys(ELSEWHERE, 0)
    for item, tests in ELSEWHERE.items():
        counts[item] += len(tests)
    cases = [case.item for case in [*test_pdfs.CASES.values(), *test_images.CASES.values()]]
    rows = [row[0] for row in [*test_reading.TEXTS.values(), *test_reading.PAGES.values()]]
    for item in [*cases, *rows]:
        counts[item] = counts.get(item, 0) + 1
    return counts


def test_every_complaint_has_a_case_or_a_reason(record_property: Callable[[str, object], None]) -> None:
    counts = covered()
    assert sorted([*counts, *NOT_COVERED]) == list(ITEMS)
    record_property("complaints_covered", len(counts))
    record_property("cases", sum(counts.values()))
    print(f"{len(counts)} of {len(ITEMS)} complaints covered by {sum(counts.values())} cases and tests")
    assert len(counts) == 60
    assert sum(counts.values()) >= 180


@pytest.mark.parametrize("item", ELSEWHERE)
def test_named_tests_exist(item: int) -> None:
    for name in ELSEWHERE[item]:
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, name


def test_installing_brings_no_framework() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[^\w-]", requirement)[0].lower() for requirement in project["dependencies"]}
    assert names.isdisjoint({"torch", "tensorflow", "transformers", "vllm", "onnxruntime", "jax"})
