"""No input that the OpenAPI document allows, and none that it forbids, makes the service fail."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from puda.serve.app import create_app

HOST = {"Host": "127.0.0.1"}


@pytest.fixture
def document(served, store):
    app = create_app({"board": served}, store)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=HOST)
    schema.config.generation.update(modes=list(GenerationMode))
    return schema


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_request_is_answered_as_documented(case):
    if "run" in case.path_parameters:
        case.path_parameters["run"] = "board"
    response = case.call(headers=HOST)
    case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])
