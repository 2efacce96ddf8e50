"""No request that the OpenAPI document allows, and none that it forbids, makes the service fail."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from board import missing
from puda.serve.app import create_app

HOST = {"Host": "127.0.0.1"}
PARTS = ("head", "relation", "tail")


@pytest.mark.parametrize("mode", GenerationMode)
def test_any_request_is_answered_as_documented(served, store, mode):
    app = create_app({"board": served}, store)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=HOST)
    statuses = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=15, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            _name_what_is_there(case)
            response = case.call(headers=HOST)
            statuses.add(response.status_code)
            checks = [not_a_server_error, response_schema_conformance]
            case.validate_response(response, checks=checks)

        try:
            check()
        except Unsatisfiable:  # what takes nothing cannot be asked wrongly
            assert mode is GenerationMode.NEGATIVE
    assert statuses >= ({200, 201, 202} if mode is GenerationMode.POSITIVE else {404, 422})


def _name_what_is_there(case: schemathesis.Case) -> None:
    """Put the run and its labels in place of invented ones, so that requests reach the code."""
    if "run" in case.path_parameters:
        case.path_parameters["run"] = "board"
    for values in (case.query, case.body):
        if isinstance(values, dict):
            for part, label in zip(PARTS, missing(4), strict=True):
                if part in values and len(str(values[part])) % 2:
                    values[part] = label
